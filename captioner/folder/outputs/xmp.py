"""XMP metadata, through exiftool: `dc:description`, `Iptc4xmpCore:AltTextAccessibility` (alt text for screen
readers) and optionally `dc:subject` (keywords).

exiftool is well maintained, supports all photo formats and preserves all other metadata. The alternatives are
under the GPL or support fewer formats.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Self

from captioner.errors import ImageError, OptionsError
from captioner.files.partial import Partial
from captioner.folder.items import digest_of
from captioner.folder.outputs.exiftool import ExifTool, ExifToolError
from captioner.folder.outputs.options import OutputOptions, Record
from captioner.folder.outputs.sidecar import SidecarOutput, whole
from captioner.folder.sources import read_stamped, stamp_of
from captioner.folder.state import Entry, State
from captioner.images.suffixes import PICTURES, RAW
from captioner.words.keywords import hierarchy_of, keywords_of
from captioner.words.tokens import tokenize

DESCRIPTION, ALT_TEXT = "XMP-dc:Description", "XMP-iptcCore:AltTextAccessibility"
KEYWORDS, WRITER = "XMP-dc:Subject", "XMP-photoshop:CaptionWriter"
_OTHER_DESCRIPTIONS = ("IPTC:Caption-Abstract", "IFD0:ImageDescription", "XMP-tiff:ImageDescription")
_OTHER_KEYWORDS = ("IPTC:Keywords",)
"""Tags in which other programs store the description and the keywords."""
_PATHS = {"XMP-lr:HierarchicalSubject": "|", "XMP-digiKam:TagsList": "/"}
"""Tags of keywords with what they are kinds of, and what is between them."""
_OF = "XMP-photoshop:SidecarForExtension"
_READ = (
    *(DESCRIPTION, f"{DESCRIPTION}-en*", ALT_TEXT, f"{ALT_TEXT}-en*", KEYWORDS, WRITER, _OF),
    *(*_OTHER_DESCRIPTIONS, *_OTHER_KEYWORDS, *_PATHS),
)
_OF_CAMERAS = re.compile(
    r"((olympus|konica|minolta|samsung|sony|kodak|casio|hp|default)?[\w ]*(digital (still )?camera|dsc)|"
    r"sony dsc|exif_jpeg\w*|dcim[\\/].*|jpeg|default|screenshot|processed with \w+)?",
    re.IGNORECASE,
)
"""What cameras write as a description of every photo."""
_MOST_OF_CAMERAS = 200
"""Characters of it. `_OF_CAMERAS` takes time with the square of the length."""
_MARK = re.compile(r"(?:^|; )captioner \S+$")
"""Names captioner and its model as the writer of a description, after the writers that a person named."""
_MAX_BYTES = 2**40
_KEPT = b"kept"
_INTENT = "writing"
"""The entry of the state that says what was last to be written."""


class Written(NamedTuple):
    """What is ours in the metadata of a photo."""

    digest: bytes = b""
    """Digest of the caption."""
    tags: str = ""
    """A letter for each tag: d(escription), a(lt text), k(eywords), w(riter)."""
    keywords: bytes = b""
    """Digest of the keywords."""
    kept: bool = False
    """Whether text of others was kept, so that a rerun can report it without reading the file."""

    @classmethod
    def parse(cls, published: bytes | None) -> Self:
        """From the bytes in the state, in which older versions did not name the tags."""
        if not published:
            return cls()
        digest, rest = published[:16], published[16:]
        if rest.startswith(b":"):
            letters, _, keywords = rest[1:].partition(b":")
            tags = letters.decode("ascii", "replace")
            return cls(digest, tags, keywords, not {"d", "a"} <= set(tags))
        return cls(digest, "dak", kept=rest == _KEPT)

    def to_bytes(self) -> bytes:
        keywords = b":" + self.keywords if self.keywords else b""
        return self.digest + b":" + self.tags.encode() + keywords


class XmpOutput(SidecarOutput):
    """Writes `dogs/1.jpg.xmp` for `dogs/1.jpg`, the naming of digiKam and darktable, or the `dogs/1.xmp` of
    Lightroom where it is there; with `embed`, the photo itself.

    Existing content is kept: each property is written only if it is empty or an earlier run wrote it, unless
    `replace_existing`. Of texts in several languages only the default is written.
    """

    suffix = ".xmp"
    keeps_suffix = True

    def __init__(self, path: Path, options: OutputOptions) -> None:
        super().__init__(path, options)
        if options.embed and (options.root is None or options.root.resolve() != path.resolve()):
            raise OptionsError("--embed changes the photos themselves: give their folder as OUT", "embed")
        self._tool = ExifTool()

    def close(self) -> None:
        super().close()
        self._tool.close()

    def put(self, entry: Entry, record: Record, wanted: bytes | None, state: State) -> None:
        text = one_line(record["caption"]) if wanted else ""
        try:
            if self._options.embed:
                target, published = self._find_photo(entry.name), entry.published
            else:
                target, published = self.find_target(entry, state)
            place = self._folder / target
            before = Written.parse(published)
            is_done = before.digest == (wanted or b"") and _has_content(place)
            if is_done and not (before.kept and self._options.replace_existing):
                self.kept += before.kept
                self.settle(entry, entry.published, entry.published, state)
                return
            written = self._write(entry, target, text, record, before, state)
            self.kept += written.kept
        except (ExifToolError, ImageError, OSError, ValueError) as error:
            name = PurePath(entry.name).name if self._options.embed else f"the {self.suffix} file"
            cause = error if isinstance(error, OSError) else None
            self.reject(entry, f"cannot write {name}: {_reason(error)}", state, cause)
            return
        self.settle(entry, written.to_bytes() if wanted else None, entry.published, state)

    def digest(self, record: Record) -> bytes:
        return _digest(one_line(record["caption"]))

    def _find_photo(self, name: str) -> PurePath:
        """The photo below the folder: a link is to stay a link, and its photo takes the caption."""
        root = self._folder.resolve()
        photo = Path(os.path.realpath(root / name))
        if not photo.is_relative_to(root):
            raise PermissionError(0, f"the photo is a link out of {self._folder}")
        return photo.relative_to(root)

    def find_target(self, entry: Entry, state: State) -> tuple[PurePath, bytes | None]:
        short = PurePath(os.path.normpath(entry.name)).with_suffix(self.suffix)
        if state.owner_of(short.as_posix()) == entry.name:
            return short, entry.published
        return super().find_target(entry, state)

    def _candidates(self, own: PurePath) -> Iterator[PurePath]:
        # Lightroom's name for it, which other programs would no longer read if there was one of ours beside.
        if self._is_of_lightroom(own):
            yield own.with_suffix(self.suffix)
        yield from super()._candidates(own)

    def _is_of_lightroom(self, own: PurePath) -> bool:
        if not own.suffix:
            return False
        try:
            with self._root.below(*own.parent.parts) as folder:
                if folder.look(f"{own.name}{self.suffix}") is not None:
                    return False
                content = folder.read(own.with_suffix(self.suffix).name)
                if content is None:
                    return False
                extension = self._tool.get_tags(content, self.suffix, [_OF]).get(_OF)
                if extension:
                    return str(extension).lower() == own.suffix[1:].lower()
                # Of several photos of one name, none says which one it belongs to; RAW photos come first.
                others = [own.with_suffix(f".{one}").name for one in (*RAW, *PICTURES)]
                return not any(name != own.name and folder.look(name) is not None for name in others)
        except (OSError, ExifToolError):
            return False

    def _write(
        self, entry: Entry, target: PurePath, text: str, record: Record, before: Written, state: State
    ) -> Written:
        """Write what may be written; what is ours then."""
        if not text and not (self._folder / target).exists():
            return Written()
        with self._root.below(*target.parent.parts, create=not self._options.embed) as folder:
            folder.check_replaceable(target.name)
            found = folder.read(target.name)
            if found is None and self._options.embed:
                raise FileNotFoundError(0, "the photo is gone")
            before = _intended(entry.name, found, state) or before
            content = found if self._options.embed else whole(found)
            tags = {} if content is None else self._tool.get_tags(content, target.suffix, _READ)
            photo = {} if self._options.embed else self._tags_of_photo(entry.name)
            changes, written = self._choose(tags, photo, text, record, before)
            if changes:
                changed = self._tool.set_tags(content, target.suffix, changes)
                partial = Partial(folder, target.name)
                try:
                    if folder.read(target.name) != found:
                        raise PermissionError(0, "it has changed meanwhile")
                    partial.file.write(changed)
                    _intend(entry.name, changed, written, state)
                    partial.commit(durable=self._options.embed, irreplaceable=self._options.embed)
                finally:
                    partial.discard()
                if self._options.embed and (status := folder.look(target.name)) is not None:
                    state.restamp(entry, stamp_of(status), digest_of(changed))
        return written

    def _tags_of_photo(self, name: str) -> Mapping[str, Any]:
        """What is embedded in the photo beside the file, where it can be read."""
        if self._options.root is None:
            return {}
        try:
            content, _ = read_stamped(self._options.root / name, _MAX_BYTES)
            return self._tool.get_tags(content, PurePath(name).suffix, _READ)
        except (ImageError, ExifToolError):
            return {}

    def _choose(
        self, tags: Mapping[str, Any], photo: Mapping[str, Any], text: str, record: Record, before: Written
    ) -> tuple[dict[str, str | list[str]], Written]:
        """The tags to write, and what is ours then. `tags` are those of the file, `photo` those of the photo
        where the file is beside it."""
        changes: dict[str, str | list[str]] = {}
        ours = ""
        for letter, tag in (("d", DESCRIPTION), ("a", ALT_TEXT)):
            value = str(tags.get(tag, ""))
            is_ours = bool(value) and letter in before.tags and _digest(value) == before.digest
            if not text:
                if is_ours:
                    changes[f"{tag}-x-default"] = ""
                continue
            others = [] if is_ours else [value, *_others(tag, tags), *_others(tag, photo), photo.get(tag, "")]
            if self._options.replace_existing or not any(str(other).strip() for other in others):
                ours += letter
                if value != text:
                    changes[f"{tag}-x-default"] = text
        keywords = self._choose_keywords(tags, photo, _keywords(record, text), before, changes)
        ours += "k" if keywords else ""
        ours += _choose_writer(tags, record if "d" in ours else {}, before, changes)
        return changes, Written(_digest(text), ours, keywords, bool(text) and not {"d", "a"} <= set(ours))

    def _choose_keywords(
        self,
        tags: Mapping[str, Any],
        photo: Mapping[str, Any],
        wanted: Sequence[str],
        before: Written,
        changes: dict[str, str | list[str]],
    ) -> bytes:
        """Adds the tags to write to `changes`. Returns the digest of the keywords that are ours then. Those
        of a caption that we wrote go with it."""
        found = _listed(tags, KEYWORDS)
        others = [tags.get(tag) for tag in (*_OTHER_KEYWORDS, *_PATHS)]
        others += [photo.get(tag) for tag in (KEYWORDS, *_OTHER_KEYWORDS, *_PATHS)]
        is_free = not found and not any(others)
        if not (_are_ours(found, tags, before) or (wanted and self._options.keywords and is_free)):
            return b""
        if found != list(wanted):
            changes[KEYWORDS] = list(wanted) or [""]
        for tag, slash in _PATHS.items():
            paths = _listed(tags, tag)
            if not paths or paths == _paths(found, slash):  # ours too
                new = _paths(wanted, slash) if self._options.hierarchy else []
                if paths != new:
                    changes[tag] = new or [""]
        return _digest("\n".join(wanted)) if wanted else b""


def _intend(name: str, content: bytes, written: Written, state: State) -> None:
    """Note what is ours in a file that is about to be written: a kill may come before the state says so."""
    state.set(_INTENT, json.dumps([name, digest_of(content).hex(), written.to_bytes().hex()]))


def _intended(name: str, content: bytes | None, state: State) -> Written | None:
    """What is ours in a file that was written just before a kill; None if that is not this content."""
    if content is None:
        return None
    try:
        about, digest, written = json.loads(state.get(_INTENT) or "[]")
        same = (about, digest) == (name, digest_of(content).hex())
        return Written.parse(bytes.fromhex(written)) if same else None
    except (ValueError, TypeError, RecursionError):  # a state of somebody else
        return None


def _has_content(place: Path) -> bool:
    """Whether there is a file that no power failure has emptied."""
    if not place.is_file():
        return False
    with place.open("rb") as file:
        return file.read(1) not in (b"", b"\0")


def _keywords(record: Record, text: str) -> Sequence[str]:
    """Those of the photo, or of a caption that a person wrote."""
    return (record.get("keywords") or keywords_of(text)) if text else []


def _are_ours(keywords: Sequence[str], tags: Mapping[str, Any], before: Written) -> bool:
    """Whether an earlier run wrote these keywords."""
    if not keywords or "k" not in before.tags:
        return False
    if before.keywords:
        return _digest("\n".join(keywords)) == before.keywords
    # Older states do not say; then they were words of the caption.
    texts = [str(tags.get(tag, "")) for tag in (DESCRIPTION, ALT_TEXT)]
    return any(_digest(text) == before.digest and set(keywords) <= set(tokenize(text)) for text in texts)


def _listed(tags: Mapping[str, Any], tag: str) -> list[str]:
    value = tags.get(tag, [])
    return [str(one) for one in (value if isinstance(value, list) else [value])]


def _paths(keywords: Iterable[str], slash: str) -> list[str]:
    return [slash.join(hierarchy_of(keyword)) for keyword in keywords]


def _choose_writer(
    tags: Mapping[str, Any], record: Record, before: Written, changes: dict[str, str | list[str]]
) -> str:
    """Marks the description of a machine as one. `record` is empty if the description is not ours. Adds the
    tags to write to `changes`. Returns "w" if it marks one."""
    value = str(tags.get(WRITER, ""))
    plain = _MARK.sub("", value) if "w" in before.tags else value
    is_of_machine = "caption" in record and "log_prob" in record  # not of a person who corrected it
    mark = f"captioner {record.get('model') or 'unknown'}" if is_of_machine else ""
    wanted = "; ".join(part for part in (plain, mark) if part)
    if wanted != value:
        changes[WRITER] = wanted
    return "w" if mark else ""


def _others(tag: str, tags: Mapping[str, Any]) -> list[str]:
    """Texts of people that a text in `tag` would hide."""
    texts = [str(value) for name, value in tags.items() if name.startswith(f"{tag}-en")]
    if tag == DESCRIPTION:
        texts += [str(tags.get(name, "")) for name in _OTHER_DESCRIPTIONS]
    return [text for text in texts if not _is_of_camera(text.strip())]


def _is_of_camera(text: str) -> bool:
    return len(text) <= _MOST_OF_CAMERAS and _OF_CAMERAS.fullmatch(text) is not None


def one_line(caption: str) -> str:
    """A caption as XMP holds it."""
    return " ".join(caption.split())


def _digest(text: str) -> bytes:
    return digest_of(text.encode("utf-8", "surrogatepass"))


def _reason(error: Exception) -> str:
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0].removeprefix("Error: ").partition(" - ")[0] if lines else type(error).__name__
