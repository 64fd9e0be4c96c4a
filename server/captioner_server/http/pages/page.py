"""The web page: a few files built at the start, with a policy that forbids everything else."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

from starlette.routing import Route

from captioner.overlay import template
from captioner.overlay.gallery.write import DESK
from captioner.overlay.page import page_shell
from captioner.overlay.payload import packed_colormap
from captioner.overlay.scene import OverlayOptions
from captioner.words import forms
from captioner.words.alt_text import alt_text_rules
from captioner.words.english import ANOTHER_LANGUAGE, FEW_FOREIGN
from captioner_server.http.pages.static_file import StaticFile

_STYLES = ("theme.css", "view.css", "gallery.css", "page.css")
_SCRIPTS = (
    "token.js",
    "api.js",
    "payload.js",
    "downloads.js",
    "files.js",
    "intake.js",
    "camera.js",
    "alt.js",
    "settings.js",
    "captioning.js",
    "wording.js",
    "queue.js",
    "album.js",
    "single.js",
    "live.js",
    "main.js",
)
_EXAMPLES = {
    "cat.jpg": "A cat",
    "jockey.jpg": "A horse race",
    "raccoon.jpg": "A raccoon",
    "coffee.jpg": "A cup of coffee",
}
"""Photos to try on the empty page; examples/README.md has their licences."""
_RECORDS = (
    '<button type="button" data-save="jsonl">Everything'
    "<small>as captioner batch writes it, with maps and alternatives (JSONL)</small></button>"
)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; font-src data:; "
    "media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


def page_routes(patience_s: float) -> list[Route]:
    """The page at / and the files that it loads. A caller may read nothing for `patience_s`."""

    def file(path: str, content: str | bytes, kind: str) -> Route:
        content = content.encode() if isinstance(content, str) else content
        return Route(path, StaticFile(content, kind, _HEADERS, patience_s=patience_s), methods=["GET"])

    view = template.fill(
        template.load("view.html"),
        {
            "photo": '<img alt=""><video muted playsinline hidden></video>',
            "heading": '<h2 class="unseen view-title" tabindex="-1"></h2>',
        },
    )
    options = OverlayOptions()
    settings = {
        "alpha": options.alpha,
        "colormap": packed_colormap(options.colormap),
        "forms": forms.table(),
        "altText": alt_text_rules(),
        "language": {"another": ANOTHER_LANGUAGE, "few": FEW_FOREIGN},
    }
    examples = "\n".join(
        f'<button type="button" class="example"><img src="examples/{name}" alt="{shows}"></button>'
        for name, shows in _EXAMPLES.items()
    )
    parts = {
        "view": view,
        "review": template.load("review.html"),
        "keys": template.fill(template.load("keys.html"), {"escape": "show the plain photo"}),
        "tools": template.fill(template.load("tools.html"), {"saves": _RECORDS}),
        "examples": examples,
        "settings": template.to_json(settings),
    }
    scripts = [template.load(*DESK), *(_read(name) for name in _SCRIPTS)]
    return [
        file("/", template.fill(_read("page.html"), parts), "text/html"),
        file("/page.css", "\n".join([template.load_style(*_STYLES), _read("page.css")]), "text/css"),
        file("/page.js", "\n".join(["'use strict';", *scripts]), "text/javascript"),
        file("/overlay.html", page_shell(), "text/html"),
        *(
            file(f"/examples/{name}", _path("examples", name).read_bytes(), "image/jpeg")
            for name in _EXAMPLES
        ),
    ]


def _path(*names: str) -> Traversable:
    return (resources.files("captioner_server.http.pages") / "static").joinpath(*names)


def _read(name: str) -> str:
    return _path(name).read_text(encoding="utf-8")
