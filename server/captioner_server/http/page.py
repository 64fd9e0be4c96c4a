"""The web page: a few files built at the start, with a policy that forbids everything else."""

from __future__ import annotations

from importlib import resources

from starlette.routing import Route

from captioner.maps.saliency import stops
from captioner.overlay import template
from captioner.overlay.page import page_shell
from captioner.overlay.scene import OverlayOptions
from captioner.words.english import FUNCTION_WORDS
from captioner_server.http.static_file import StaticFile

_STYLES = ("theme.css", "view.css", "gallery.css", "page.css")
_VIEW_SCRIPTS = ("theme.js", "field.js", "view.js", "search.js", "list.js")
_SCRIPTS = ("api.js", "payload.js", "downloads.js", "files.js", "camera.js", "main.js")
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

    def file(path: str, text: str, kind: str) -> Route:
        return Route(path, StaticFile(text.encode(), kind, _HEADERS, patience_s=patience_s), methods=["GET"])

    view = template.fill(
        template.load("view.html"),
        {
            "photo": '<img alt=""><video muted playsinline hidden></video>',
            "heading": '<h2 class="unseen">Words of the caption</h2>',
        },
    )
    options = OverlayOptions()
    settings = {
        "alpha": options.alpha,
        "colormap": "".join(
            f"{red:02x}{green:02x}{blue:02x}" for red, green, blue in stops(options.colormap)
        ),
        "smallWords": sorted(FUNCTION_WORDS),
    }
    page = template.fill(_read("page.html"), {"view": view, "settings": template.to_json(settings)})
    scripts = [template.load(*_VIEW_SCRIPTS), *(_read(name) for name in _SCRIPTS)]
    return [
        file("/", page, "text/html"),
        file("/page.css", "\n".join([template.load_style(*_STYLES), _read("page.css")]), "text/css"),
        file("/page.js", "\n".join(["'use strict';", *scripts]), "text/javascript"),
        file("/overlay.html", page_shell(), "text/html"),
    ]


def _read(name: str) -> str:
    return (resources.files("captioner_server.http") / "static" / name).read_text(encoding="utf-8")
