"""XMP metadata, through exiftool: `dc:description`, `Iptc4xmpCore:AltTextAccessibility` (alt text for screen
readers) and optionally `dc:subject` (keywords).

exiftool is well maintained, supports all photo formats and preserves all other metadata. The alternatives are
under the GPL or support fewer formats.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from captioner.errors import ImageError, OptionsError, reason_of
from captioner.files.partial import Partial
from captioner.folder.items import digest_of
from captioner.folder.outputs.options import OutputOptions
from captioner.folder.outputs.sidecar import SidecarOutput, whole
from captioner.folder.outputs.xmp.exiftool import ExifTool, ExifToolError, one_line
from captioner.folder.outputs.xmp.tags import (
    READ,
    SIDECAR_FOR,
    Changes,
    Wanted,
    choose,
    is_marked,
    text_digest,
    without_ours,
)
from captioner.folder.outputs.xmp.written import BESIDE, WITHIN, Written, join_places, read_places
from captioner.folder.sources.files import read_stamped, stamp_of
from captioner.folder.state import Entry, State
from captioner.folder.transform import Record
from captioner.images.suffixes import PICTURES, RAW

_MAX_BYTES = 2**40
_INTENT = "writing"
"""The entry of the state that says what was last to be written."""
_PROPERTIES = b"<rdf:Description"
"""What exiftool writes around all properties, if there are any."""


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
        new = Wanted.of(record, self._options) if wanted else Wanted()
        places = read_places(entry.published)
        try:
            if self._options.embed:
                own, target = WITHIN, self._find_photo(entry.name)
            else:
                own, (target, published) = BESIDE, self.find_target(entry, state)
                if published != entry.published:  # the file of a photo that is gone
                    places |= {name: one for name, one in read_places(published).items() if name == own}
            before = places.get(own, Written())
            if not state.overwrite and self._is_done(target, before, new.asked):
                written = before
            else:
                written = self._write(entry, target, new, places, state)._replace(asked=new.asked)
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
        return text_digest(one_line(record["caption"]))

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
                extension = self._tool.get_tags(content, self.suffix, [SIDECAR_FOR]).get(SIDECAR_FOR)
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
        wanted: Wanted,
        places: Mapping[str, Written],
        state: State,
    ) -> Written:
        """Write what may be written; what is ours then. `places` says what was ours, and where."""
        if not wanted.text and not (self._folder / target).exists():
            return Written()
        with self._root.below(*target.parent.parts, create=not self._options.embed) as folder:
            folder.check_replaceable(target.name)
            found = folder.read(target.name)
            if found is None and self._options.embed:
                raise FileNotFoundError(0, "the photo is gone")
            before = places.get(WITHIN if self._options.embed else BESIDE, Written())
            before = _intended(entry.name, found, state) or before
            content = found if self._options.embed else whole(found)
            tags = {} if content is None else self._tool.get_tags(content, target.suffix, READ)
            photo = {} if self._options.embed else self._tags_of_photo(entry.name)
            photo = without_ours(photo, places.get(WITHIN, Written()))
            is_same = before.asked == wanted.asked != b"" and not state.overwrite
            changes: Changes = {}
            written = before
            if not (is_same and self._is_as_left(tags, before)):
                changes, written = choose(tags, photo, wanted, before, self._options)
            if changes:
                changed = self._tool.set_tags(content, target.suffix, changes)
                partial = Partial(folder, target.name)
                try:
                    if folder.read(target.name) != found:
                        raise PermissionError(0, "it has changed meanwhile")
                    if not self._options.embed and _PROPERTIES not in changed:
                        folder.remove(target.name)
                        return Written()
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
        has_mark = "w" in before.tags and is_marked(tags)
        return has_mark or without_ours(tags, before) != tags

    def _tags_of_photo(self, name: str) -> Mapping[str, Any]:
        """What is embedded in the photo beside the file, where it can be read."""
        if self._options.root is None:
            return {}
        try:
            content, _ = read_stamped(self._options.root / name, _MAX_BYTES)
            return self._tool.get_tags(content, PurePath(name).suffix, READ)
        except (ImageError, ExifToolError):
            return {}


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


def _reason(error: Exception) -> str:
    lines = reason_of(error).strip().splitlines()
    return lines[0].removeprefix("Error: ").partition(" - ")[0] if lines else type(error).__name__
