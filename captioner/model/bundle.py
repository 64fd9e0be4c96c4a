"""A model on disk: a folder of plain files that vouch for each other. Nothing is ever unpickled.

bundle.json       format, name, image size, grid, decoding defaults, SHA-256 of every other file
vocabulary.txt    one word a line
encoder.onnx      pixels -> memory and initial state
decoder.onnx      one step: tokens, memory, state -> log-probabilities, attention, state
MODEL_CARD.md     what it was trained on, how well it does, what it is bad at
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.errors import BundleError, OptionsError, clip, reason_of
from captioner.images.letterbox import Letterbox
from captioner.model.articles import ENGLISH
from captioner.model.bundle_files import DEFAULT as DEFAULT
from captioner.model.bundle_files import DEFAULT_NAME, MANIFEST, read_bundle_file
from captioner.model.graphs.check import check_graph
from captioner.model.graphs.precision import FLOAT32, INT8
from captioner.model.vocabulary import MAX_LETTERS, Vocabulary
from captioner.options import MAX_GRID_SIDE, CaptionOptions
from captioner.words.english import ARTICLES
from captioner.words.tokens import joiners

FORMATS = (1, 2)
"""That are read. A decoder of format 1 does not find the best continuations itself."""
FORMAT = FORMATS[-1]
"""That is written."""
ENCODER, DECODER, WORDS, CARD = "encoder.onnx", "decoder.onnx", "vocabulary.txt", "MODEL_CARD.md"
CHECKPOINTS = ("best.pt", "last.pt")
"""What a folder of a training run holds, the one to export first."""
FILES = (ENCODER, DECODER, WORDS, CARD)
ENCODER_INT8, DECODER_INT8 = "encoder.int8.onnx", "decoder.int8.onnx"
INT8_FILES = (ENCODER_INT8, DECODER_INT8)
"""In a bundle with both precisions, from format 2 on."""
MAX_IMAGE_SIZE = 8192
MAX_WORDS_KNOWN, MAX_EVENT = 1_000_000, 1000
"""Words of a vocabulary; characters of what confidence is the probability of."""
MAX_HEADS_SAID, MAX_PARAMETERS = 10_000, 2**63
MAX_AVOIDED, MAX_AVOIDED_WORDS = 1000, 8
"""Phrases that captions avoid, and words of one."""
OLD_SQUASH = "to a square, antialiased"
"""The description of squashing in bundles older than letterboxing."""


@dataclass(frozen=True, slots=True, eq=False)
class Bundle:
    """A bundle that has been read and verified. Graphs are held as bytes: what was verified is what runs."""

    name: str
    digest: str
    """SHA-256 of bundle.json, which holds the digests of all other files."""
    image_size: int
    """Side of the square model input, in pixels."""
    grid: tuple[int, int]
    """Rows and columns of attention maps over the square; maps of letterboxed photos have fewer."""
    has_sentinel: bool
    decoding: CaptionOptions
    """The defaults of this model, all resolved."""
    vocabulary: Vocabulary
    encoder: bytes
    decoder: bytes
    manifest: Mapping[str, Any]
    """All of bundle.json, including training settings and scores."""
    int8: tuple[bytes, bytes] | None = None
    """Encoder and decoder in INT8, where there are any; their weights lie in the files of the others."""
    letterbox: Letterbox | None = None
    """How photos are fitted into the square without distortion; None where they are squashed."""
    language: str | None = None
    """The language of the captions, such as "en"; None where the bundle does not say, as older ones."""
    avoided: tuple[tuple[int, ...], ...] = ()
    """Phrases that captions do not contain, as tokens."""
    checklist: tuple[float, float] = (0.0, 1.0)
    """Weight and power of the bonus of detected words (`captioner.nn.decoder.bonus.checklist`)."""

    @property
    def identity(self) -> str:
        """NAME@DIGEST, the digest cut to 12 hexadecimal digits."""
        return f"{self.name}@{self.digest[:12]}"

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files beside bundle.json."""
        return FILES + (INT8_FILES if self.int8 else ())

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that it has graphs for."""
        return (FLOAT32, INT8) if self.int8 else (FLOAT32,)

    @classmethod
    def load(cls, path: str | Path | None = None) -> Bundle:
        """Read the bundle in the folder `path`; None or "default" is the embedded one.

        Raises `BundleError` when a file is missing, altered, unlisted or malformed.
        """
        folder = DEFAULT if path is None or path == DEFAULT_NAME else Path(path)
        manifest, digest = _read_manifest(folder)
        contents = _read_files(folder, manifest)
        try:
            decoding = dict(manifest.get("decoding", {}))
            vocabulary = Vocabulary(_words(contents[WORDS]))
            for graph in (ENCODER, DECODER):
                check_graph(contents[graph])
            if has_int8 := ENCODER_INT8 in contents:
                check_graph(contents[ENCODER_INT8], {ENCODER: contents[ENCODER]})
                check_graph(contents[DECODER_INT8], {DECODER: contents[DECODER]})
            rows, columns = manifest["grid"]
            _check_range("grid", (rows, columns), MAX_GRID_SIDE)
            _check_range("image size", (manifest["image"]["size"],), MAX_IMAGE_SIZE)
            _check_what_is_told(manifest)
            return cls(
                name=manifest["name"],
                digest=digest,
                image_size=int(manifest["image"]["size"]),
                grid=(int(rows), int(columns)),
                has_sentinel=bool(manifest.get("sentinel", False)),
                decoding=CaptionOptions(**decoding).resolve(),
                vocabulary=vocabulary,
                encoder=contents[ENCODER],
                decoder=contents[DECODER],
                int8=(contents[ENCODER_INT8], contents[DECODER_INT8]) if has_int8 else None,
                manifest=manifest,
                letterbox=_letterbox(manifest["image"], int(rows), int(columns)),
                language=manifest.get("language"),
                avoided=avoided_phrases(
                    manifest.get("avoided_phrases", ()), vocabulary, manifest.get("language")
                ),
                checklist=_checklist(manifest),
            )
        except OptionsError as error:
            raise BundleError(f"{folder / MANIFEST}: decoding defaults: {error}") from None
        except KeyError as error:
            raise BundleError(f"{folder / MANIFEST} lacks {error}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise BundleError(f"the bundle {folder} is malformed: {error}") from None


def _words(content: bytes) -> list[str]:
    """The words of a vocabulary. Raises `ValueError`."""
    words = content.decode("utf-8").split("\n")
    if words and not words[-1]:
        words.pop()
    if len(words) > MAX_WORDS_KNOWN:
        raise ValueError(f"the vocabulary has {len(words)} words, the limit is {MAX_WORDS_KNOWN}")
    for number, word in enumerate(words, 1):
        _check_text(f"word {number} of the vocabulary", word)
    return words


def check_name(name: str) -> None:
    """Raise `ValueError` for what cannot be the name of a bundle."""
    _check_text("name", name)


def _check_text(what: str, text: object, most: int = MAX_LETTERS) -> None:
    """Clients and terminals get it: protobuf holds no surrogates, and a line no control characters."""
    if not isinstance(text, str):
        raise ValueError(f"the {what} must be a string, got {clip(repr(text), 60)}")
    needed = joiners(text)
    shown = all(letter.isprintable() or place in needed for place, letter in enumerate(text))
    if not text or len(text) > most or not shown:
        reason = f"is empty, longer than {most} characters, or has control characters"
        raise ValueError(f"{what} {reason}: {clip(ascii(text), 60)}")


def _check_what_is_told(manifest: Mapping[str, Any]) -> None:
    """Check the entries that are only told to people and clients."""
    _check_text("name", manifest["name"])
    if manifest.get("language") is not None:
        _check_text("language", manifest["language"])
    confidence = manifest.get("confidence")
    if isinstance(confidence, dict) and "event" in confidence:
        _check_text("event of confidence", confidence["event"], MAX_EVENT)
    _check_range("number of heads", (manifest.get("heads", 1),), MAX_HEADS_SAID)
    _check_range("number of parameters", (manifest.get("parameters", 1),), MAX_PARAMETERS)


def _check_range(name: str, values: Sequence[Any], most: int) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"the {name} must be from 1 to {most}, got {clip(repr(value), 60)}")


def image_section(size: int, letterbox: Letterbox | None) -> dict[str, Any]:
    """The preprocessing entry of bundle.json."""
    section: dict[str, Any] = {"size": size, "color": "RGB", "resize": "squash"}
    return section if letterbox is None else section | {"resize": "letterbox", "padding": letterbox.color}


def _checklist(manifest: Mapping[str, Any]) -> tuple[float, float]:
    model = _section(_section(manifest, "training", {}), "model", {})
    bonus = _section(model, "bonus", model)  # older bundles do not keep them apart
    return float(bonus.get("checklist_weight", 0.0)), float(bonus.get("checklist_power", 1.0))


def _section(settings: Mapping[str, Any], name: str, otherwise: Mapping[str, Any]) -> Mapping[str, Any]:
    section = settings.get(name, otherwise)
    if not isinstance(section, Mapping):
        raise ValueError(f"{name} must be an object, got {clip(repr(section), 60)}")
    return section


def avoided_phrases(
    phrases: object, vocabulary: Vocabulary, language: str | None
) -> tuple[tuple[int, ...], ...]:
    """The tokens of phrases, two words or more each. Raises `ValueError` for others and for unknown words.

    In English, "an" counts as "a": captions get the right one after the search."""
    if not isinstance(phrases, Sequence) or isinstance(phrases, str) or len(phrases) > MAX_AVOIDED:
        raise ValueError(f"avoided_phrases must be a list of at most {MAX_AVOIDED} phrases")
    articles = vocabulary.encode(" ".join(ARTICLES)) if language == ENGLISH else []
    found: list[tuple[int, ...]] = []
    for phrase in phrases:
        tokens = vocabulary.encode(phrase) if isinstance(phrase, str) else []
        if not 2 <= len(tokens) <= MAX_AVOIDED_WORDS or vocabulary.unknown_id in tokens:
            reason = f"must be 2 to {MAX_AVOIDED_WORDS} words of the vocabulary"
            raise ValueError(f"each of the avoided_phrases {reason}, got {clip(repr(phrase), 60)}")
        ways = [articles if token in articles else [token] for token in tokens]
        found += itertools.product(*ways)
    return tuple(dict.fromkeys(found))


def _letterbox(image: Mapping[str, Any], rows: int, columns: int) -> Letterbox | None:
    resize = image.get("resize", "squash")
    if resize in ("squash", OLD_SQUASH):
        return None
    if resize != "letterbox":
        raise ValueError(f"this version of captioner cannot resize photos by {resize!r}")
    size = int(image["size"])
    if rows != columns or rows < 1 or size % rows:
        raise ValueError(f"a square of {size} pixels cannot have {rows} x {columns} cells")
    red, green, blue = image["padding"]
    return Letterbox(size // rows, (int(red), int(green), int(blue)))


def write_manifest(folder: Path, contents: Mapping[str, Any]) -> None:
    """Write bundle.json with the digests of the other files in the folder, all of which must exist."""
    names = [name for name in (*FILES, *INT8_FILES) if name in FILES or (folder / name).exists()]
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    text = json.dumps({"format": FORMAT, **contents, "files": digests}, indent=2, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def change_manifest(folder: Path, changes: Mapping[str, Any]) -> None:
    """Change entries of bundle.json, and write the digests of the files as they are now."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    kept = {name: value for name, value in manifest.items() if name not in ("format", "files")}
    write_manifest(folder, {**kept, **changes})


def _read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    path = folder / MANIFEST
    try:
        raw = read_bundle_file(path)
    except OSError as error:
        if checkpoint := _checkpoint(folder):
            made_by = shlex.join(["captioner", "export", str(checkpoint), "-o", "BUNDLE"])
            raise BundleError(f"{folder} is of a training run; {made_by} makes a model of it") from None
        if not isinstance(error, FileNotFoundError):
            raise BundleError(f"cannot read {path}: {reason_of(error)}") from None
        reason = "has no bundle.json" if folder.is_dir() else "does not exist"
        raise BundleError(f"{folder} is not a model bundle: it {reason}") from None
    try:
        manifest = json.loads(raw)
        json.dumps(manifest, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BundleError(f"{path} has half of a character (a lone surrogate)") from None
    except (ValueError, RecursionError):
        raise BundleError(f"{path} is not valid JSON") from None
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if type(found) is not int or found not in FORMATS:
        formats = " and ".join(map(str, FORMATS))
        raise BundleError(
            f"{path} has format {clip(repr(found), 60)}; this version of captioner reads formats {formats}"
        )
    return manifest, hashlib.sha256(raw).hexdigest()


def _checkpoint(place: Path) -> Path | None:
    """What `captioner train` left here, which may be taken for a model."""
    places = (place, *(place / name for name in CHECKPOINTS))
    return next((path for path in places if path.suffix == ".pt" and path.is_file()), None)


def _read_files(folder: Path, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    listed = manifest.get("files")
    names: tuple[str, ...] = FILES
    if manifest["format"] > 1 and isinstance(listed, dict) and not listed.keys().isdisjoint(INT8_FILES):
        names = (*FILES, *INT8_FILES)
    if not isinstance(listed, dict) or set(listed) != set(names):
        raise BundleError(f"{folder / MANIFEST} must list exactly {', '.join(names)}")
    foreign = sorted({path.name for path in folder.iterdir()} - set(names) - {MANIFEST})
    if foreign:
        raise BundleError(
            f"the bundle {folder} holds a file that is not part of it: {clip(ascii(foreign[0])[1:-1])}"
        )
    contents = {}
    for name in names:
        try:
            contents[name] = read_bundle_file(folder / name)
        except FileNotFoundError:
            raise BundleError(f"the bundle {folder} lacks {name}") from None
        except OSError as error:
            raise BundleError(f"cannot read {folder / name}: {reason_of(error)}") from None
        if hashlib.sha256(contents[name]).hexdigest() != listed[name]:
            raise BundleError(
                f"{folder / name} is not the file that bundle.json describes (its digest differs)"
            )
    return contents
