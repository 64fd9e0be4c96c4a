"""The tags of a photo: which ones to write for a caption, and which of those that it has are ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import regex

from captioner.folder.items import digest_of
from captioner.folder.outputs.options import OutputOptions
from captioner.folder.outputs.xmp.exiftool import one_line
from captioner.folder.outputs.xmp.written import Written
from captioner.folder.records import keywords_of_record
from captioner.folder.transform import Record
from captioner.images.xmp import is_of_camera
from captioner.words.keywords import hierarchy_of
from captioner.words.tokens import tokenize

Changes = dict[str, str | list[str]]
"""Tags to write, with their values; empty to remove them."""
DESCRIPTION, ALT_TEXT = "XMP-dc:Description", "XMP-iptcCore:AltTextAccessibility"
KEYWORDS, WRITER = "XMP-dc:Subject", "XMP-photoshop:CaptionWriter"
_OTHER_DESCRIPTIONS = (
    *("IPTC:Caption-Abstract", "IFD0:ImageDescription", "XMP-tiff:ImageDescription"),
    "IFD0:XPComment",  # of Windows
    "PNG:Description",
)
_COMMENT = "ExifIFD:UserComment"
_OTHER_KEYWORDS = ("IPTC:Keywords", "IFD0:XPKeywords")
"""Tags in which other programs store the description and the keywords."""
_PATHS = {"XMP-lr:HierarchicalSubject": "|", "XMP-digiKam:TagsList": "/"}
"""Tags of keywords with what they are kinds of, and what is between them."""
SIDECAR_FOR = "XMP-photoshop:SidecarForExtension"
READ = (
    *(DESCRIPTION, f"{DESCRIPTION}-en*", ALT_TEXT, f"{ALT_TEXT}-en*", KEYWORDS, WRITER, SIDECAR_FOR),
    *(*_OTHER_DESCRIPTIONS, _COMMENT, *_OTHER_KEYWORDS, *_PATHS),
)
_OF_PEOPLE = regex.compile(r"\p{L}[\p{L}\p{M}]*(['’-][\p{L}\p{M}]+)*[,.]? \p{L}[^\]\[{}<>_=:;]*")
"""Words with spaces between them. Phones and programs write settings into comments."""
_MARK = re.compile(r"(?:^|; )captioner \S+$")
"""Names captioner and its model as the writer of a description, after the writers that a person named."""


class Wanted(NamedTuple):
    """What is to be written for a photo; nothing, to take back what was."""

    text: str = ""
    keywords: Sequence[str] = ()
    mark: str = ""
    """Names the machine that wrote the text; nothing for a person who corrected it."""
    asked: bytes = b""
    """Digest of all of this."""

    @classmethod
    def of(cls, record: Record, options: OutputOptions) -> Self:
        text = one_line(record["caption"])
        keywords = keywords_of_record(record) if text else ()
        mark = f"captioner {record.get('model') or 'unknown'}" if "log_prob" in record else ""
        written = list(keywords) if options.keywords else None
        return cls(text, keywords, mark, text_digest(json.dumps([text, written, options.hierarchy, mark])))


def is_marked(tags: Mapping[str, Any]) -> bool:
    """Whether captioner is among the writers of the description."""
    return _MARK.search(str(tags.get(WRITER, ""))) is not None


def choose(
    tags: Mapping[str, Any],
    photo: Mapping[str, Any],
    wanted: Wanted,
    before: Written,
    options: OutputOptions,
) -> tuple[Changes, Written]:
    """The tags to write, and what is ours then. `tags` are those of the file, `photo` those of the photo
    where the file is beside it."""
    changes: Changes = {}
    ours, text = "", wanted.text
    for letter, tag in (("d", DESCRIPTION), ("a", ALT_TEXT)):
        value = str(tags.get(tag, ""))
        is_ours = bool(value) and letter in before.tags and text_digest(value) == before.digest
        if not text:
            if is_ours:
                changes[f"{tag}-x-default"] = ""
            continue
        others = [] if is_ours else [value, *_others(tag, tags), *_others(tag, photo), photo.get(tag, "")]
        if options.replace_existing or not any(str(other).strip() for other in others):
            ours += letter
            if value != text:
                changes[f"{tag}-x-default"] = text
    is_same = bool(text) and text_digest(text) == before.digest
    keywords = _choose_keywords(tags, photo, wanted.keywords, before, changes, options, is_same=is_same)
    ours += "k" if keywords else ""
    ours += _choose_writer(tags, wanted.mark if "d" in ours else "", before, changes)
    return changes, Written(text_digest(text), ours, keywords, bool(text) and not {"d", "a"} <= set(ours))


def _choose_keywords(
    tags: Mapping[str, Any],
    photo: Mapping[str, Any],
    wanted: Sequence[str],
    before: Written,
    changes: Changes,
    options: OutputOptions,
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
    if not (are_ours or (wanted and options.keywords and is_free)):
        return b""
    if are_ours and not options.keywords and is_same:  # nothing was asked about them
        return text_digest("\n".join(found))
    if found != list(wanted):
        changes[KEYWORDS] = list(wanted) or [""]
    for tag, slash in _PATHS.items():
        paths = _listed(tags, tag)
        if not paths or paths == _paths(found, slash):  # ours too
            new = _paths(wanted, slash) if options.hierarchy else []
            if paths != new:
                changes[tag] = new or [""]
    return text_digest("\n".join(wanted)) if wanted else b""


def _are_ours(keywords: Sequence[str], tags: Mapping[str, Any], before: Written) -> bool:
    """Whether an earlier run wrote these keywords."""
    if not keywords or "k" not in before.tags:
        return False
    if before.keywords:
        return text_digest("\n".join(keywords)) == before.keywords
    # Older states do not say; then they were words of the caption.
    texts = [str(tags.get(tag, "")) for tag in (DESCRIPTION, ALT_TEXT)]
    return any(text_digest(text) == before.digest and set(keywords) <= set(tokenize(text)) for text in texts)


def _listed(tags: Mapping[str, Any], tag: str) -> list[str]:
    value = tags.get(tag, [])
    return [str(one) for one in (value if isinstance(value, list) else [value])]


def _paths(keywords: Iterable[str], slash: str) -> list[str]:
    return [slash.join(hierarchy_of(keyword)) for keyword in keywords]


def _choose_writer(tags: Mapping[str, Any], mark: str, before: Written, changes: Changes) -> str:
    """Marks the description of a machine as one. `mark` is empty if the description is not ours. Adds the
    tags to write to `changes`. Returns "w" if it marks one."""
    value = str(tags.get(WRITER, ""))
    plain = _MARK.sub("", value) if "w" in before.tags else value
    wanted = "; ".join(part for part in (plain, mark) if part)
    if wanted != value:
        changes[WRITER] = wanted
    return "w" if mark else ""


def without_ours(tags: Mapping[str, Any], ours: Written) -> dict[str, Any]:
    """The tags of a photo that we did not embed."""
    left = dict(tags)
    for letter, tag in (("d", DESCRIPTION), ("a", ALT_TEXT)):
        if letter in ours.tags and text_digest(str(tags.get(tag, ""))) == ours.digest:
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
        comment = str(tags.get(_COMMENT, "")).strip()
        texts += [comment] if _OF_PEOPLE.fullmatch(comment) else []
    return [text for text in texts if not is_of_camera(text.strip())]


def text_digest(text: str) -> bytes:
    """Digest by which a text, or keywords, are known to be ours."""
    return digest_of(text.encode("utf-8", "surrogatepass"))
