"""Writes a gallery: a page, and a folder with thumbnails, photos and the data of each view."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from captioner.errors import OptionsError, reason_of
from captioner.files.destination import find_destination, replacing, writing
from captioner.files.held_folder import Folder
from captioner.files.whole_folder import folder_aside, sync_folder
from captioner.images.folders import GALLERY_MARKER
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.overlay import template
from captioner.overlay.gallery.entry import Entry, make_entry
from captioner.retrieval.duplicates import group
from captioner.words import forms
from captioner.words.english import language_of_captions

CHUNK = 1000
"""Photos per script file of the index."""
_MARKER_BYTES = 2**12
STYLES = ("theme.css", "view.css", "gallery.css")
DESK = (
    "remember.js",
    "theme.js",
    "language.js",
    "keys.js",
    "copy.js",
    "field.js",
    "view.js",
    "search.js",
    "list.js",
    "decisions.js",
    "review.js",
    "save.js",
    "replacer.js",
    "menu.js",
    "desk.js",
)
"""The scripts of every page with many photos."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryOptions:
    """How a gallery is made."""

    title: str | None = None
    """The title of the page; None for the name of the folder of photos."""
    link_photos: bool = False
    """Whether views show the original files where a browser can, instead of copies of at most 1280 pixels."""
    limits: ImageLimits = DEFAULT_LIMITS
    """Photos beyond them become failures."""
    saves_to: str | None = None
    """The address, on the server of the page, that decisions are read from and sent to; without one they stay
    in the browser."""
    overwrite: bool = False
    """Whether to replace also a page that is no gallery."""


@dataclass(frozen=True, slots=True)
class GallerySummary:
    """Summary of a written gallery."""

    page: Path
    photos: int
    failed: int


def write_gallery(
    records: Iterable[Mapping[str, Any]],
    out_path: str | Path,
    image_root: str | Path,
    options: GalleryOptions = GalleryOptions(),
    report: Callable[[str, str], None] | None = None,
) -> GallerySummary:
    """Write OUT.html and the folder OUT.files beside it; both must be moved together.

    `records` are captions as `Caption.to_dict` makes them, or failures as `error_to_dict` does; they are read
    one by one, so that they may be produced while the gallery is written. `image` in a record is relative to
    `image_root`; photos outside it are rejected. `report` is called with the name of each photo that failed
    and the reason. An existing gallery is replaced. Raises `OptionsError` if the files cannot be written.
    """
    page = Path(out_path)
    check_page(page, overwrite=options.overwrite)
    files = page.with_suffix(".files")
    try:
        with folder_aside(page.parent, _put_back) as aside:
            partial, old = aside / "new", aside / "old"
            _make_folders(partial, page)
            link_from = page.parent if options.link_photos else None
            entries = _make_entries(records, Path(image_root), link_from, options.limits, report)
            rows = _write_files(entries, partial)
            chunks = _write_index(rows, partial)
            failed = sum(row[3] is not None for row in rows)
            name = options.title if options.title is not None else Path(image_root).resolve().name
            check_page(page, overwrite=options.overwrite)  # again: making entries takes long
            language = language_of_captions(row[1] for row in rows if row[3] is None)
            content = _page(name or "Photos", language, files.name, chunks, options.saves_to).encode()
            sync_folder(partial)
            _put_in_place(page, content, partial, old)
    except OSError as error:
        raise OptionsError(f"cannot write {page}: {reason_of(error)}", "output") from error
    return GallerySummary(page, len(rows), failed)


def check_page(page: Path, *, overwrite: bool) -> None:
    """Raise `OptionsError` for a path that a gallery cannot be written to, before any work is done."""
    if page.suffix.lower() not in (".html", ".htm"):
        raise OptionsError(f"a gallery is an .html file, got {page.name!r}", "output")
    with writing(page):
        place, is_stream = find_destination(page)
        is_taken = not is_stream and place.exists() and place.stat().st_size > 0
    files = page.with_suffix(".files")
    if files.is_symlink() or (files.exists() and not (files / GALLERY_MARKER).is_file()):
        raise OptionsError(f"{files} is there already and is not of a gallery", "output")
    if (owner := _owner(files)) not in (None, page.name):
        raise OptionsError(f"{files} belongs to the gallery {owner}; choose another name", "output")
    if is_taken and not files.exists() and not overwrite:
        raise OptionsError(
            f"{page} is there already, and no earlier run of this command wrote it; --overwrite replaces it",
            "output",
        )


def _put_in_place(page: Path, content: bytes, partial: Path, old: Path) -> None:
    """Write a page, with `partial` as its folder; the folder that it had is moved to `old`. Both are moved
    back if this fails."""
    files = page.with_suffix(".files")
    try:
        if files.exists():
            files.rename(old)
        partial.rename(files)
        with replacing(page) as file:  # which makes the renames durable too
            file.write(content)
    except BaseException:
        if not partial.exists():
            files.rename(partial)
        if old.exists():
            old.rename(files)
        raise


def _owner(files: Path) -> str | None:
    """The name of the page that a folder belongs to, if it says so."""
    try:
        with Folder(files.parent, files.name) as folder:
            content = folder.read(GALLERY_MARKER, _MARKER_BYTES) or b""
    except OSError:
        return None
    lines = content.decode(errors="surrogateescape").splitlines()
    return lines[1] if len(lines) > 1 else None


def _put_back(aside: Path) -> None:
    """Put the gallery back that a killed run had taken away, and had not replaced yet."""
    old, page = aside / "old", _owner(aside / "old")
    if page is not None and Path(page).name == page:
        files = aside.with_name(page).with_suffix(".files")
        if not os.path.lexists(files):
            old.rename(files)


def _make_folders(files: Path, page: Path) -> None:
    files.mkdir(parents=True)
    for name in ("thumbs", "photos", "views", "index"):
        (files / name).mkdir()
    text = f"captioner gallery made this folder for this page, and may replace it:\n{page.name}\n"
    (files / GALLERY_MARKER).write_text(text, encoding="utf-8", errors="surrogateescape")


def _make_entries(
    records: Iterable[Mapping[str, Any]],
    image_root: Path,
    link_from: Path | None,
    limits: ImageLimits,
    report: Callable[[str, str], None] | None,
) -> Iterator[Entry]:
    for record in records:
        entry = make_entry(record, image_root, link_from, limits)
        if entry.error is not None and report is not None:
            report(str(record.get("image", entry.name)), entry.error)
        yield entry


def _write_files(entries: Iterable[Entry], files: Path) -> list[list[Any]]:
    rows, fingerprints = [], []
    for number, entry in enumerate(entries):
        _write_entry(entry, number, files)
        rows.append(entry.index_row())
        fingerprints.append(entry.fingerprint)
    for number, alike in enumerate(group(fingerprints), 1):
        for row in (rows[place] for place in alike):
            row.append(number)
    return rows


def _write_entry(entry: Entry, number: int, files: Path) -> None:
    if entry.view is None:
        return
    (files / "thumbs" / f"{number}.jpg").write_bytes(entry.thumbnail)
    if entry.photo is not None:
        (files / "photos" / f"{number}.jpg").write_bytes(entry.photo)
    # Scripts and not JSON: a page that is opened from disk may load scripts beside it, but not fetch.
    call = f"captionerGallery.receiveView({number},{template.to_json(entry.view)});\n"
    (files / "views" / f"{number}.js").write_text(call, encoding="ascii")


def _write_index(rows: list[list[Any]], files: Path) -> int:
    chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
    for number, chunk in enumerate(chunks):
        call = f"captionerGallery.receiveIndex({template.to_json(chunk)});\n"
        (files / "index" / f"{number}.js").write_text(call, encoding="ascii")
    return len(chunks)


def _page(title: str, language: str, files_name: str, chunks: int, saves_to: str | None) -> str:
    css = template.load_style(*STYLES)
    script = "'use strict';\n" + template.load(*DESK, "gallery.js")
    base = quote(files_name, errors="surrogateescape")
    policy = (
        f"default-src 'none'; img-src 'self' data:; font-src data:; style-src {template.content_hash(css)}; "
        f"script-src 'self' {template.content_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    if saves_to is not None:
        policy += "; connect-src 'self'"
    heading = '<h2 class="unseen view-title" tabindex="-1"></h2>'
    index = "\n".join(f'<script src="{base}/index/{number}.js"></script>' for number in range(chunks))
    return template.fill(
        template.load("gallery.html"),
        {
            "policy": policy,
            "title": template.escape(title),
            "language": language,
            "base": base,
            "saving": "" if saves_to is None else f' data-saves="{template.escape(saves_to)}"',
            "style": css,
            "tools": template.fill(template.load("tools.html"), {"saves": ""}),
            "review": template.load("review.html"),
            "keys": template.fill(template.load("keys.html"), {"escape": "close the photo"}),
            "view": template.fill(template.load("view.html"), {"photo": '<img alt="">', "heading": heading}),
            "forms": template.to_json(forms.table()),
            "script": script,
            "index": index,
        },
    )
