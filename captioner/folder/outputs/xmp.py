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
from typing import Any

from captioner.errors import ImageError, OptionsError
from captioner.files.partial import Partial
from captioner.folder.items import digest_of
from captioner.folder.outputs.exiftool import ExifTool, ExifToolError
from captioner.folder.outputs.options import OutputOptions, Record
from captioner.folder.outputs.own_metadata import BESIDE, WITHIN, Written, join_places, read_places
from captioner.folder.outputs.sidecar import SidecarOutput, whole
from captioner.folder.sources.files import read_stamped, stamp_of
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
_INTENT = "writing"
"""The entry of the state that says what was last to be written."""


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
        places = read_places(entry.published)
        try:
            if self._options.embed:
                own, target = WITHIN, self._find_photo(entry.name)
            else:
                own, (target, published) = BESIDE, self.find_target(entry, state)
                if published != entry.published:  # the file of a photo that is gone
                    places |= {name: one for name, one in read_places(published).items() if name == own}
            before = places.get(own, Written())
            asked = self._asked(text, record) if wanted else b""
            if not state.overwrite and self._is_done(target, before, asked):
                written = before
            else:
                written = self._write(entry, target, text, record, asked, places, state)
                written = written._replace(asked=asked)
            self.kept += written.kept
        except (ExifToolError, ImageError, OSError, ValueError) as error:
            name = PurePath(entry.name).name if self._options.embed else f"the {self.suffix} file"
            cause = error if isinstance(error, OSError) else None
            self.reject(entry, f"cannot write {name}: {_reason(error)}", state, cause)
            return
        places.pop(own, None)
        self.settle(
            entry, join_places({**places, own: written} if wanted else places), entry.published, state
        )

    def _asked(self, text: str, record: Record) -> bytes:
        """The digest of all that is to be written for a photo."""
        keywords = list(_keywords(record, text)) if self._options.keywords else None
        return _digest(json.dumps([text, keywords, self._options.hierarchy, _mark(record)]))

    def _is_done(self, target: PurePath, before: Written, asked: bytes) -> bool:
        """Whether all that is asked for was written, and is still there as far as can be told without reading
        metadata."""
        if not asked:
            return before == Written()
        place = self._folder / target
        if before.asked != asked or not _has_content(place):
            return False
        if before.kept and self._options.replace_existing:
            return False
        # Another photo may have come in the place of the one that we wrote into.
        return not self._options.embed or before.stamp == stamp_of(place.stat())

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
                # Of several photos of one name, also in capitals, none says which one it belongs to.
                mine = folder.look(own.name)
                suffixes = [f".{one}" for known in (*RAW, *PICTURES) for one in (known, known.upper())]
                others = filter(None, (folder.look(own.with_suffix(one).name) for one in suffixes))
                return all(mine is not None and os.path.samestat(mine, other) for other in others)
        except (OSError, ExifToolError):
            return False

    def _write(
        self,
        entry: Entry,
        target: PurePath,
        text: str,
        record: Record,
        asked: bytes,
        places: Mapping[str, Written],
        state: State,
    ) -> Written:
        """Write what may be written; what is ours then. `places` says what was ours, and where."""
        if not text and not (self._folder / target).exists():
            return Written()
        with self._root.below(*target.parent.parts, create=not self._options.embed) as folder:
            folder.check_replaceable(target.name)
            found = folder.read(target.name)
            if found is None and self._options.embed:
                raise FileNotFoundError(0, "the photo is gone")
            before = places.get(WITHIN if self._options.embed else BESIDE, Written())
            before = _intended(entry.name, found, state) or before
            content = found if self._options.embed else whole(found)
            tags = {} if content is None else self._tool.get_tags(content, target.suffix, _READ)
            photo = {} if self._options.embed else self._tags_of_photo(entry.name)
            photo = _without_ours(photo, places.get(WITHIN, Written()))
            is_same = before.asked == asked != b"" and not state.overwrite
            changes: dict[str, str | list[str]] = {}
            written = before
            if not (is_same and self._is_as_left(tags, before)):
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
            if self._options.embed and (status := folder.look(target.name)) is not None:
                written = written._replace(stamp=stamp_of(status))
        return written

    def _is_as_left(self, tags: Mapping[str, Any], before: Written) -> bool:
        """Whether a photo has some of what we wrote: a person took the rest away, and it is not to return."""
        if not self._options.embed or (before.kept and self._options.replace_existing):
            return False
        is_marked = "w" in before.tags and _MARK.search(str(tags.get(WRITER, ""))) is not None
        return is_marked or _without_ours(tags, before) != tags

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
        is_same = bool(text) and _digest(text) == before.digest
        wanted = _keywords(record, text)
        keywords = self._choose_keywords(tags, photo, wanted, before, changes, is_same=is_same)
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
        *,
        is_same: bool,
    ) -> bytes:
        """Adds the tags to write to `changes`. Returns the digest of the keywords that are ours then. Those
        of a caption that we wrote go with it; `is_same` says whether it stays."""
        found = _listed(tags, KEYWORDS)
        others = [tags.get(tag) for tag in (*_OTHER_KEYWORDS, *_PATHS)]
        others += [photo.get(tag) for tag in (KEYWORDS, *_OTHER_KEYWORDS, *_PATHS)]
        is_free = not found and not any(others)
        are_ours = _are_ours(found, tags, before)
        if not (are_ours or (wanted and self._options.keywords and is_free)):
            return b""
        if are_ours and not self._options.keywords and is_same:  # nothing was asked about them
            return _digest("\n".join(found))
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
    mark = _mark(record)
    wanted = "; ".join(part for part in (plain, mark) if part)
    if wanted != value:
        changes[WRITER] = wanted
    return "w" if mark else ""


def _mark(record: Record) -> str:
    """Names the machine that wrote a caption; nothing for a person who corrected it."""
    is_of_machine = "caption" in record and "log_prob" in record
    return f"captioner {record.get('model') or 'unknown'}" if is_of_machine else ""


def _without_ours(tags: Mapping[str, Any], ours: Written) -> dict[str, Any]:
    """The tags of a photo that we did not embed."""
    left = dict(tags)
    for letter, tag in (("d", DESCRIPTION), ("a", ALT_TEXT)):
        if letter in ours.tags and _digest(str(tags.get(tag, ""))) == ours.digest:
            left.pop(tag, None)
    keywords = _listed(tags, KEYWORDS)
    if _are_ours(keywords, tags, ours):
        del left[KEYWORDS]
        for tag, slash in _PATHS.items():
            if _listed(tags, tag) == _paths(keywords, slash):
                left.pop(tag, None)
    return left


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
