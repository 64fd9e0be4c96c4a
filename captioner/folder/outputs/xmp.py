"""XMP metadata, through exiftool: `dc:description`, `Iptc4xmpCore:AltTextAccessibility` (alt text for screen
readers) and optionally `dc:subject` (keywords).

exiftool is well maintained, supports all photo formats and preserves all other metadata. The alternatives are
under the GPL or support fewer formats.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioner.errors import ImageError, OptionsError
from captioner.folder.items import digest_of
from captioner.folder.outputs.exiftool import ExifTool, ExifToolError
from captioner.folder.outputs.files import partial_path
from captioner.folder.outputs.options import OutputOptions, Record
from captioner.folder.outputs.sidecar import SidecarOutput
from captioner.folder.sources import read_file
from captioner.folder.state import Entry, State
from captioner.words.english import is_function_word
from captioner.words.tokens import tokenize

DESCRIPTION, ALT_TEXT = "XMP-dc:Description", "XMP-iptcCore:AltTextAccessibility"
KEYWORDS = "XMP-dc:Subject"
_OLDER = ("IPTC:Caption-Abstract", "IPTC:Keywords")
"""Tags in which older programs store the description and the keywords."""
_MAX_BYTES = 2**40
_KEPT = b"kept"
"""Suffix of the digest in the state if another program's text was kept, so that a rerun can report it without
reading the file."""


class XmpOutput(SidecarOutput):
    """Writes `dogs/1.jpg.xmp` for `dogs/1.jpg`, the naming of digiKam and darktable; with `embed`, the photo
    itself.

    Existing content is kept: each of the two properties is written only if it is empty or an earlier run
    wrote it, unless `replace_existing`.
    """

    suffix = ".xmp"
    keeps_suffix = True

    def __init__(self, path: Path, options: OutputOptions) -> None:
        super().__init__(path, options)
        if options.embed and (options.root is None or options.root.resolve() != path.resolve()):
            raise OptionsError("--embed changes the photos themselves: give their folder as OUT", "embed")
        self._tool = ExifTool()

    def close(self) -> None:
        self._tool.close()

    def put(self, entry: Entry, record: Record, wanted: bytes | None, state: State) -> None:
        text = " ".join(record["caption"].split()) if wanted else ""
        if self._options.embed:
            # A link is to stay a link; its photo takes the caption.
            target, published = Path(os.path.realpath(self._folder / entry.name)), entry.published
            if not target.is_relative_to(self._folder.resolve()):
                self.reject(entry, f"the photo is a link out of {self._folder}", state)
                return
        else:
            target, published = self.find_target(entry, state)
        kept_before = published is not None and published.endswith(_KEPT)
        published = published.removesuffix(_KEPT) if published else None
        if published == wanted and target.is_file() and not (kept_before and self._options.replace_existing):
            self.kept += kept_before
            self.settle(entry, entry.published, entry.published, state)
            return
        try:
            kept = self._write_tags(target, text, published)
            self.kept += kept
            if self._options.embed:
                content, stamp = read_file(target, _MAX_BYTES)
                state.restamp(entry, stamp, digest_of(content))
        except (ExifToolError, ImageError, OSError, ValueError) as error:
            cause = error if isinstance(error, OSError) else _try_writing(target)
            self.reject(entry, f"exiftool cannot write {target.name}: {_reason(error)}", state, cause)
            return
        self.settle(entry, wanted + _KEPT if wanted and kept else wanted, entry.published, state)

    def digest(self, record: Record) -> bytes:
        return _digest(" ".join(record["caption"].split()))

    def _write_tags(self, target: Path, text: str, published: bytes | None) -> bool:
        """Whether something else's words were kept."""
        path = Path(os.path.abspath(target))  # noqa: PTH100
        if not target.exists():
            if text:
                self._make_sidecar(target, text)
            return False
        Path(f"{path}_exiftool_tmp").unlink(missing_ok=True)  # a killed run's, with which exiftool refuses
        there = self._tool.get_tags(path, [DESCRIPTION, ALT_TEXT, KEYWORDS, *_OLDER])
        free = {
            DESCRIPTION: self._may_replace([there.get(DESCRIPTION), there.get(_OLDER[0])], published),
            ALT_TEXT: self._may_replace([there.get(ALT_TEXT)], published),
        }
        if not text:  # only what we wrote is taken away
            free = {tag: tag in there and _digest(str(there[tag])) == published for tag in free}
        tags: dict[str, str | list[str]] = {
            tag: text for tag, may in free.items() if may and there.get(tag, "") != text
        }
        if (keywords := self._keywords(there, text, published)) is not None:
            tags[KEYWORDS] = keywords
        if tags:
            self._tool.set_tags(path, tags)
        return bool(text) and not all(free.values())

    def _keywords(self, there: Mapping[str, Any], text: str, published: bytes | None) -> list[str] | None:
        """The keywords to write; None leaves those that are there. Those of a caption that we wrote go with
        it."""
        found = there.get(KEYWORDS, [])
        found = [str(one) for one in (found if isinstance(found, list) else [found])]
        wanted = keywords_of(text) if text else [""]
        for tag in (DESCRIPTION, ALT_TEXT):
            before = str(there.get(tag, ""))
            if before and _digest(before) == published and found == keywords_of(before):
                return None if found == wanted else wanted
        is_free = not found and not there.get(_OLDER[1])
        return wanted if text and self._options.keywords and is_free else None

    def _make_sidecar(self, target: Path, text: str) -> None:
        if self._options.embed:
            raise FileNotFoundError("the photo is gone")
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_path(target).with_suffix(".partial.xmp")
        partial.unlink(missing_ok=True)
        words = {KEYWORDS: keywords_of(text)} if self._options.keywords else {}
        self._tool.set_tags(partial.absolute(), {DESCRIPTION: text, ALT_TEXT: text, **words})
        partial.replace(target)

    def _may_replace(self, values: list[Any], published: bytes | None) -> bool:
        texts = [str(value) for value in values if value is not None and str(value).strip()]
        ours = all(_digest(text) == published for text in texts)
        return self._options.replace_existing or ours


_NAMES_NOTHING = frozenset(
    "top front side back middle edge group pair couple bunch piece number one two three four five six "  # noqa: SIM905
    "several many few lot all other another each big large small little".split()
)


def keywords_of(text: str) -> list[str]:
    """The words of a caption that name something, in order: not those that only join others or say where
    and how many, nor what is done ("running")."""
    words = (
        word
        for word in tokenize(text)
        if not (is_function_word(word) or word in _NAMES_NOTHING or word.endswith("ing"))
    )
    return list(dict.fromkeys(words)) or [""]


def _digest(text: str) -> bytes:
    return digest_of(text.encode("utf-8", "surrogateescape"))


def _try_writing(target: Path) -> OSError | None:
    """Why a file beside another cannot be written, which exiftool does not report."""
    probe = partial_path(target)
    try:
        probe.write_bytes(bytes(2**16 + (target.stat().st_size if target.exists() else 0)))
        return None
    except OSError as error:
        return error
    finally:
        probe.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].removeprefix("Error: ").partition(" - ")[0] if lines else type(error).__name__
