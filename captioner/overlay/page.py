"""The interactive page of one photo: a single file that needs no network and trusts no text."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.sources import ImageInput
from captioner.overlay import template
from captioner.overlay.payload import encode_photo, make_payload
from captioner.overlay.scene import OverlayOptions, make_scene
from captioner.overlay.styles import DEFAULT_STYLE, find_style
from captioner.results import Caption
from captioner.words.english import language_of_captions

PHOTO_SIDE = 1600
"""Maximum side of the photo in the page, in pixels."""
JPEG_QUALITY = 85


def render_html(
    image: ImageInput,
    caption: Caption,
    style: str = DEFAULT_STYLE,
    options: OverlayOptions | None = None,
    *,
    name: str | None = None,
    limits: ImageLimits = DEFAULT_LIMITS,
    **fields: Any,
) -> str:
    """A self-contained HTML page: the photo, at most `width` (1600) pixels in each direction, and the
    caption, whose words show their maps.

    `style` is the initial style, "panels" (colours) or "spotlight". `name` is shown above the photo; the
    default is the file name. Other parameters are those of `render_overlay`.
    """
    options, how = OverlayOptions.merge(options, fields), find_style(style, "page")
    scene = make_scene(image, caption, options, PHOTO_SIDE, limits)
    if name is None:
        name = Path(image).name if isinstance(image, str | Path) else ""
    photo = base64.b64encode(encode_photo(scene.photo, options.width or PHOTO_SIDE, JPEG_QUALITY)).decode()
    payload = make_payload(caption, scene.words, scene.photo.size, options, how.page_mode)
    escaped, language = template.escape(caption.text), language_of_captions([caption.text])
    return template.fill(
        page_shell(),
        {
            "language": language,
            "title": template.escape(f"{caption.text} – {name}" if name else caption.text),
            "name": template.escape(name),
            "caption": escaped,
            "photo": f'<img lang="{language}" alt="{escaped}" src="data:image/jpeg;base64,{photo}">',
            "heading": f'<h1 class="unseen" lang="{language}">{escaped}</h1>',
            "data": template.to_json(payload),
        },
    )


def page_shell() -> str:
    """The page without its photo: {{language}}, {{title}}, {{name}}, {{caption}}, {{photo}}, {{heading}} and
    {{data}} are left to be filled in, as escaped HTML and as JSON (`template.to_json`)."""
    css = template.load_style("theme.css", "view.css", "page.css")
    script = "'use strict';\n" + template.load(
        "remember.js", "theme.js", "language.js", "field.js", "copy.js", "view.js", "page.js"
    )
    policy = (
        f"default-src 'none'; img-src data:; font-src data:; style-src {template.content_hash(css)}; "
        f"script-src {template.content_hash(script)}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    left = {name: f"{{{{{name}}}}}" for name in ("language", "title", "name", "caption", "data")}
    filled = {"policy": policy, "style": css, "view": template.load("view.html"), "script": script}
    return template.fill(template.load("page.html"), {**left, **filled})
