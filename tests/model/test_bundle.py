"""A bundle is taken whole and unaltered, or refused with the reason."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from captioner import BundleError
from captioner.captioner import Captioner
from captioner.images.letterbox import Letterbox
from captioner.model.bundle import FILES, MANIFEST, Bundle, avoided_phrases, change_manifest
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.results import Caption


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the manifest, digests and all."""
    manifest = json.loads((folder / MANIFEST).read_text())
    edit(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def renew(folder: Path) -> None:
    """Make the digests right again."""
    change_manifest(folder, {})


def refusal(folder: Path) -> str:
    with pytest.raises(BundleError) as raised:
        Bundle.load(folder)
    message = str(raised.value)
    assert "\n" not in message and str(folder) in message
    return message


def test_a_good_bundle(tiny_bundle: Path) -> None:
    bundle = Bundle.load(tiny_bundle)
    assert (bundle.name, bundle.image_size, bundle.grid) == ("tiny", 64, (4, 4))
    assert bundle.digest == hashlib.sha256((tiny_bundle / MANIFEST).read_bytes()).hexdigest()
    assert bundle.identity == f"tiny@{bundle.digest[:12]}"
    assert bundle.decoding.beam_size == 3 and bundle.decoding.max_words == 16
    assert bundle.vocabulary.words[4:6] == ("black", "white")
    assert not bundle.has_sentinel
    assert bundle.manifest["training"]["model"]["encoder"] == "tiny_cnn"


@pytest.mark.parametrize("resize", [None, "squash", "to a square, antialiased"])
def test_bundles_that_squash_photos(copy: Path, resize: str | None) -> None:
    """Also those that are older than the choice."""
    change(copy, lambda manifest: manifest["image"].update(resize=resize) if resize else None)
    if resize is None:
        change(copy, lambda manifest: manifest["image"].pop("resize"))
    assert Bundle.load(copy).letterbox is None


def test_a_bundle_that_letterboxes(copy: Path) -> None:
    image = {"resize": "letterbox", "padding": [124, 116, 104]}
    change(copy, lambda manifest: manifest["image"].update(image))
    assert Bundle.load(copy).letterbox == Letterbox(16, (124, 116, 104))
    with pytest.raises(BundleError, match="do not keep the contract"):
        Captioner.load(copy, device="cpu")  # its encoder takes no mask


@pytest.mark.parametrize(
    ("image", "grid", "reason"),
    [
        ({"resize": "crop"}, [4, 4], "cannot resize photos by 'crop'"),
        ({"resize": "letterbox"}, [4, 4], "lacks 'padding'"),
        ({"resize": "letterbox", "padding": [1, 2]}, [4, 4], "malformed"),
        ({"resize": "letterbox", "padding": "grey"}, [4, 4], "malformed"),
        ({"resize": "letterbox", "padding": [0, 0, 999]}, [4, 4], "0 to 255"),
        ({"resize": "letterbox", "padding": [0, 0, 0]}, [2, 8], "cannot have 2 x 8 cells"),
        ({"resize": "letterbox", "padding": [0, 0, 0]}, [0, 0], "from 1 to 256, got 0"),
        ({"resize": "letterbox", "padding": [0, 0, 0]}, [64, 64], "even number of pixels"),
    ],
)
def test_preprocessing_that_cannot_be(copy: Path, image: dict[str, Any], grid: list, reason: str) -> None:
    change(copy, lambda manifest: (manifest["image"].update(image), manifest.update(grid=grid)))
    assert reason in refusal(copy)


@pytest.mark.parametrize("language", [True, 1, ["en"], {"en": 1}])
def test_a_language_that_cannot_be(copy: Path, language: object) -> None:
    change(copy, lambda manifest: manifest.update(language=language))
    assert "the language must be a string" in refusal(copy)


def test_defaults_that_a_bundle_does_not_name(copy: Path) -> None:
    change(copy, lambda manifest: manifest.update(decoding={"beam_size": 2}))
    decoding = Bundle.load(copy).decoding
    assert decoding.beam_size == 2
    assert None not in (decoding.max_words, decoding.length_normalization, decoding.no_repeat_ngram)


def test_phrases_that_captions_avoid(copy: Path) -> None:
    """They hold for captions and for streamed words."""
    captioner = Captioner.load(copy, device="cpu")
    pixels = np.random.default_rng(2).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    before = [caption.text.split() for caption in captioner.caption_pixels(pixels)]
    said = sorted({" ".join(words[i : i + 2]) for words in before for i in range(len(words) - 1)})
    change(copy, lambda manifest: manifest.update(avoided_phrases=said))
    captioner = Captioner.load(copy, device="cpu")
    for image, caption in zip(pixels, captioner.caption_pixels(pixels), strict=True):
        *_, streamed = captioner.stream_pixels(image)
        assert isinstance(streamed, Caption)
        for text in (caption.text, streamed.text):
            assert not any(phrase in text for phrase in said)


def test_english_phrases_are_avoided_with_either_article() -> None:
    """The search may say "next to an field", which would become "next to a field"."""
    vocabulary = Vocabulary([*SPECIAL, "a", "an", "to", "field"])
    assert avoided_phrases(["to a field"], vocabulary, "en") == ((6, 4, 7), (6, 5, 7))
    assert avoided_phrases(["to a field", "to an field"], vocabulary, None) == ((6, 4, 7), (6, 5, 7))
    assert avoided_phrases(["to field"], vocabulary, "en") == ((6, 7),)


@pytest.mark.parametrize("phrases", ["a dog", ["a"], [3], ["a gryphon"], ["a dog"] * 1001, 5, ["a " * 9]])
def test_phrases_that_cannot_be_avoided(copy: Path, phrases: object) -> None:
    change(copy, lambda manifest: manifest.update(avoided_phrases=phrases))
    assert "avoided_phrases" in refusal(copy)


def test_another_manifest_is_another_digest(copy: Path, tiny_bundle: Path) -> None:
    change(copy, lambda manifest: manifest.update(scores={"x": {"cider": 1.0}}))
    assert Bundle.load(copy).digest != Bundle.load(tiny_bundle).digest


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file(copy: Path, name: str) -> None:
    (copy / name).unlink()
    assert f"lacks {name}" in refusal(copy)


@pytest.mark.parametrize("name", FILES)
def test_an_altered_file(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    message = refusal(copy)
    assert name in message and "digest differs" in message


@pytest.mark.parametrize("name", ["weights.pt", ".hidden", "folder"])
def test_a_foreign_file(copy: Path, name: str) -> None:
    (copy / name).mkdir() if name == "folder" else (copy / name).write_text("x")
    assert f"not part of it: {name}" in refusal(copy)


def test_a_folder_in_place_of_a_file(copy: Path) -> None:
    (copy / "encoder.onnx").unlink()
    (copy / "encoder.onnx").mkdir()
    assert "cannot read" in refusal(copy)


def test_a_place_that_is_no_bundle(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere")
    assert "has no bundle.json" in refusal(tmp_path)
    (tmp_path / "last.pt").touch()
    for place in (tmp_path, tmp_path / "last.pt"):
        assert f"captioner export {tmp_path / 'last.pt'} -o BUNDLE makes a model" in refusal(place)
    file = tmp_path / "file"
    file.write_text("x")
    assert "cannot read" in refusal(file)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("\0\1\2", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "has format None"),
        ("null", "has format None"),
        ("{}", "has format None"),
        ('{"format": 3}', "has format 3; this version of captioner reads formats 1 and 2"),
        ('{"format": 1.0}', "has format 1.0"),
        ('{"format": true}', "has format True"),
        ('{"format": "1"}', "has format '1'"),
        ('{"format": 1}', "must list exactly"),
        ('{"format": 1, "files": ["encoder.onnx"]}', "must list exactly"),
    ],
)
def test_a_manifest_that_is_not_one(copy: Path, content: str, reason: str) -> None:
    (copy / MANIFEST).write_text(content)
    assert reason in refusal(copy)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda m: m["files"].pop("encoder.onnx"), "must list exactly"),
        (lambda m: m["files"].update({"../evil": "0"}), "must list exactly"),
        (lambda m: m["files"].update({"vocabulary.txt": None}), "digest differs"),
        (lambda m: m.pop("name"), "lacks 'name'"),
        (lambda m: m.pop("grid"), "lacks 'grid'"),
        (lambda m: m.pop("image"), "lacks 'image'"),
        (lambda m: m.update(image={}), "lacks 'size'"),
        (lambda m: m.update(image="64"), "malformed"),
        (lambda m: m.update(image={"size": "large"}), "malformed"),
        (lambda m: m.update(grid=4), "malformed"),
        (lambda m: m.update(grid=[4]), "malformed"),
        (lambda m: m.update(decoding=[1]), "malformed"),
        (lambda m: m.update(decoding={"beam": 3}), "malformed"),
        (lambda m: m.update(decoding={"beam_size": 0}), "decoding defaults: beam_size"),
    ],
)
def test_a_manifest_that_says_what_cannot_be(
    copy: Path, edit: Callable[[dict[str, Any]], object], reason: str
) -> None:
    change(copy, edit)
    assert reason in refusal(copy)


@pytest.mark.parametrize("words", ["a\nb\n", "<pad>\n<start>\n<end>\n<unk>\na\na\n", ""])
def test_a_vocabulary_that_is_not_one(copy: Path, words: str) -> None:
    (copy / "vocabulary.txt").write_text(words)
    renew(copy)
    assert "malformed" in refusal(copy)


def test_words_have_the_joiners_that_their_script_needs(copy: Path) -> None:
    words = (copy / "vocabulary.txt").read_text().splitlines()
    for word, is_right in (("می\u200cرود", True), ("ශ්\u200dරී", True), ("a\u200db", False)):
        (copy / "vocabulary.txt").write_text("\n".join([*words[:-1], word]))
        renew(copy)
        if is_right:
            assert Bundle.load(copy).vocabulary.words[-1] == word
        else:
            assert "malformed" in refusal(copy)


def test_a_vocabulary_that_is_not_text(copy: Path) -> None:
    (copy / "vocabulary.txt").write_bytes(b"<pad>\n\xff\xfe\n")
    renew(copy)
    assert "malformed" in refusal(copy)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda f: (f / "encoder.onnx").write_bytes(b"not a graph"), "not in the format of ONNX"),
        (lambda f: (f / "decoder.onnx").write_bytes(b""), "cannot be loaded"),
        (lambda f: shutil.copy(f / "encoder.onnx", f / "decoder.onnx"), "do not keep the contract"),
        (lambda f: shutil.copy(f / "decoder.onnx", f / "encoder.onnx"), "do not keep the contract"),
        (lambda f: change(f, lambda m: m["image"].update(size=32)), "do not keep the contract"),
        (lambda f: change(f, lambda m: m.update(grid=[4, 5])), "do not match its vocabulary and its grid"),
        (
            lambda f: (f / "vocabulary.txt").open("a").write("zebra\n"),
            "do not match its vocabulary and its grid",
        ),
    ],
)
def test_graphs_that_do_not_fit(copy: Path, edit: Callable[[Path], object], reason: str) -> None:
    edit(copy)
    renew(copy)
    with pytest.raises(BundleError, match=reason) as raised:
        Captioner.load(copy, device="cpu")
    assert "\n" not in str(raised.value)
