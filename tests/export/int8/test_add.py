"""INT8 graphs stand beside the float32 ones, say nearly the same, and hold no weights of their own."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from support import squares
from support.graphs import make_model

import captioner
from captioner.captioner import Captioner
from captioner.errors import BundleError, DataError, OptionsError
from captioner.export.bundle import export_bundle
from captioner.export.int8.add import LEAST_PHOTOS, encoder_feeds
from captioner.export.int8.bias_correction import correct_biases
from captioner.export.int8.quantizer import Quantizer
from captioner.export.int8.ranges import Array, Range, widen
from captioner.export.shared_weights import session
from captioner.model import bundle as bundles
from captioner.model.bundle import Bundle
from captioner.model.graphs import precision
from captioner.model.graphs.check import GraphError, check_graph
from captioner.model.vocabulary import SPECIAL
from captioner.nn.model import CaptionModel
from captioner.training.weights import checkpoint

WORDS = [*SPECIAL, *(f"word{number}" for number in range(60))]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return squares.noise(tmp_path_factory.mktemp("photos"), 12)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    options = squares.options()
    changes = {"decoder": "two_lstm", "attention": "scaled_dot_product", "hidden": 80, "features": 64}
    options = dataclasses.replace(options, model=dataclasses.replace(options.model, **changes))
    model = CaptionModel(options.model, len(WORDS))
    with torch.no_grad():
        model.decoder.embedding.weight.mul_(4)
    path = tmp_path_factory.mktemp("run") / "best.pt"
    contents = {"options": options.to_dict(), "vocabulary": WORDS, "model": model.state_dict()}
    checkpoint.save(path, contents)
    return path


@pytest.fixture(scope="module")
def exported(saved: Path, photos: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "bundle"
    export_bundle(saved, folder, images=photos[:2], int8_photos=photos)
    return folder


def test_both_precisions_say_nearly_the_same(exported: Path, photos: list[Path]) -> None:
    exact, rounded = (Captioner.load(exported, device="cpu", precision=p) for p in ("float32", "int8"))
    assert (exact.precision, rounded.precision) == ("float32", "int8")
    pixels = np.stack([exact.preprocess(photo) for photo in photos])
    first, second = exact.encode(pixels), rounded.encode(pixels)
    tokens = np.full((len(photos), 1), 1)
    ours, our_maps, _ = first.step(tokens, first.start(1))
    theirs, their_maps, _ = second.step(tokens, second.start(1))
    assert 0 < np.abs(ours - theirs).max() < 0.3
    np.testing.assert_allclose(our_maps, their_maps, atol=0.02)


def test_biases_absorb_shifted_means(exported: Path, photos: list[Path]) -> None:
    exact = Captioner.load(exported, device="cpu", precision="float32")
    graph = exact.bundle.encoder
    feeds = encoder_feeds(exact, np.stack([exact.preprocess(photo) for photo in photos]))
    quantizer = Quantizer(graph)
    values = quantizer.observed().run(quantizer.activations, feeds)
    ranges: dict[str, Range] = {}
    widen(ranges, zip(quantizer.activations, values, strict=True), 0.05)  # so narrow that means shift
    rounded = quantizer.quantize(ranges, bundles.ENCODER)
    corrected = correct_biases(graph, rounded, bundles.ENCODER, [feeds])
    last = [node.output[0] for node in onnx.load_from_string(rounded).graph.node if node.op_type == "Conv"][
        -1
    ]

    def means(run: onnxruntime.InferenceSession) -> Array:
        return np.asarray(run.run([last], feeds)[0].mean(axis=(0, 2, 3)))

    wanted = means(Quantizer(graph).observed([last]))
    before, after = (
        np.abs(means(session(_giving(last, one), {bundles.ENCODER: graph})) - wanted).mean()
        for one in (rounded, corrected)
    )
    assert after < 0.2 * before


def _giving(name: str, graph: bytes) -> bytes:
    """The graph with one of its values as its only output."""
    model = onnx.load_from_string(graph)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return bytes(model.SerializeToString())


def test_the_start_of_a_mobile_network_is_not_rounded() -> None:
    """The embedded model's stem and its first depthwise convolution."""
    graph = Path(captioner.__file__).parent / "models" / "default" / bundles.ENCODER
    quantizer = Quantizer(graph.read_bytes())
    rounded = quantizer.quantize(dict.fromkeys(quantizer.activations, (0.0, 1.0)), bundles.ENCODER)
    nodes = onnx.load_from_string(rounded).graph.node
    read = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    convolutions = [node for node in nodes if node.op_type == "Conv"]
    assert [node.input[1] in read for node in convolutions[:4]] == [False, False, True, True]


def test_products_of_an_image_are_rounded_too() -> None:
    """The embedded model's vocabulary is scored for the whole photo: ONNX Runtime computes a `Gemm` in
    float32."""
    graph = Path(captioner.__file__).parent / "models" / "default" / bundles.ENCODER
    quantizer = Quantizer(graph.read_bytes())
    rounded = quantizer.quantize(dict.fromkeys(quantizer.activations, (-1.0, 1.0)), bundles.ENCODER)
    assert "Gemm" in {node.op_type for node in onnx.load(graph).graph.node}
    left = [node.name for node in onnx.load_from_string(rounded).graph.node if node.op_type == "Gemm"]
    assert all(name.startswith("encoder.taught.") for name in left)  # its rounding would move the threshold


@pytest.mark.skipif(not precision.has_fast_int8(), reason="this processor saturates sums of 8-bit products")
@pytest.mark.parametrize("columns", [64, 96], ids=["square", "beside other columns"])
def test_the_ones_of_a_matrix_near_the_identity_are_not_rounded(columns: int) -> None:
    random = np.random.default_rng(0)
    matrix = (0.004 * random.standard_normal((64, columns))).astype(np.float32)
    matrix[:, :64] += np.eye(64, dtype=np.float32)
    values = {"matrix": matrix, "bias": random.random(columns, dtype=np.float32)}
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "matrix"], ["product"]),
        onnx.helper.make_node("Add", ["product", "bias"], ["y" if columns == 64 else "both"]),
    ]
    if columns > 64:
        values["sizes"] = np.array([64, columns - 64])
        nodes.append(onnx.helper.make_node("Split", ["both", "sizes"], ["y", "z"], axis=-1))
    model = make_model(nodes, {"x": ["batch", 3, 64]}, {"y": ["batch", 3, 64]}, values)
    x = random.uniform(-1, 1, (2, 3, 64)).astype(np.float32)
    content = model.SerializeToString()
    rounded = Quantizer(content).quantize({"x": (-1.0, 1.0)}, "graph.onnx")
    [found] = session(rounded, {"graph.onnx": content}).run(None, {"x": x})
    exact = x @ matrix[:, :64] + values["bias"][:64]
    # Scales that the ones set would round the small numbers to steps of 1 / 127.
    assert np.abs(found - exact).mean() < 0.0005


def test_a_split_into_equal_parts_is_no_reason_to_take_ones_out() -> None:
    """It has no sizes. And a value that others read too must stay whole."""
    matrix = np.eye(64, 128, dtype=np.float32)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "matrix"], ["product"]),
        onnx.helper.make_node("Add", ["product", "bias"], ["both"]),
        onnx.helper.make_node("Split", ["both"], ["y", "z"], axis=-1, num_outputs=2),
    ]
    outputs = {"y": ["batch", 3, 64], "both": ["batch", 3, 128]}
    constants = {"matrix": matrix, "bias": np.zeros(128, np.float32)}
    content = make_model(nodes, {"x": ["batch", 3, 64]}, outputs, constants).SerializeToString()
    rounded = Quantizer(content).quantize({"x": (-1.0, 1.0)}, "graph.onnx")
    x = np.random.default_rng(0).uniform(-1, 1, (2, 3, 64)).astype(np.float32)
    part, whole = session(rounded, {"graph.onnx": content}).run(None, {"x": x})
    np.testing.assert_allclose(part, x, atol=0.01)
    np.testing.assert_allclose(whole[..., :64], part)


def test_an_image_does_not_depend_on_its_batch(exported: Path, photos: list[Path]) -> None:
    rounded = Captioner.load(exported, device="cpu", precision="int8")
    pixels = np.stack([rounded.preprocess(photo) for photo in photos])
    tokens = np.full((len(photos), 1), 1)
    together = rounded.encode(pixels)
    log_probs, _, _ = together.step(tokens, together.start(1))
    alone = rounded.encode(pixels[3:4])
    np.testing.assert_allclose(alone.step(tokens[:1], alone.start(1))[0][0], log_probs[3], atol=1e-4)


def test_a_second_start_reads_rounded_weights_from_the_cache(
    exported: Path, photos: list[Path], cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Captioner.load(exported, device="cpu", precision="int8")
    assert any((cache_folder / "captioner" / "graphs").iterdir())
    sessions, built = onnxruntime.InferenceSession, []

    def make(graph: str | bytes, *rest: object, **named: object) -> object:
        built.append(isinstance(graph, bytes))
        return sessions(graph, *rest, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    second = Captioner.load(exported, device="cpu", precision="int8")
    assert built == [False, False]
    pixels = np.stack([first.preprocess(photo) for photo in photos])
    for one, other in zip(first.caption_pixels(pixels), second.caption_pixels(pixels), strict=True):
        assert (one.text, one.log_prob) == (other.text, other.log_prob)


def test_the_manifest_records_what_rounding_changes(exported: Path) -> None:
    record = json.loads((exported / bundles.MANIFEST).read_text())["int8"]
    assert record["photos"] == 9
    assert record["memory_cosine"] > 0.98 and record["map_cosine"] > 0.98 and record["same_words"] > 0.5


def test_the_weights_lie_in_the_files_of_the_float_graphs(exported: Path) -> None:
    content = (exported / bundles.DECODER).read_bytes()
    graph = (exported / bundles.DECODER_INT8).read_bytes()
    check_graph(graph, {bundles.DECODER: content})
    for files in ({}, {"other.onnx": content}, {bundles.DECODER: content[: len(content) // 4]}):
        with pytest.raises(GraphError, match="weights outside its file"):
            check_graph(graph, files)


def test_a_bundle_without_one_of_the_two_is_refused(exported: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(exported, tmp_path / "copy"))
    (copy / bundles.DECODER_INT8).unlink()
    with pytest.raises(BundleError, match=r"lacks decoder\.int8\.onnx"):
        Bundle.load(copy)


def test_auto_takes_what_the_processor_gains_from(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for fast, expected in ((True, "int8"), (False, "float32")):
        monkeypatch.setattr("captioner.model.runtime.has_fast_int8", lambda fast=fast: fast)
        assert Captioner.load(exported, device="cpu").precision == expected


def test_the_flags_of_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision.sys, "platform", "linux")
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr(precision, "_CPU_INFO", file)
    for line, expected in (
        ("flags\t\t: sse2 avx2 avx512f avx512_vnni", True),
        ("flags\t\t: sse2 avx2", False),
        ("Features\t: fp asimd asimddp", True),
        ("model name\t: avx_vnni", False),
    ):
        file.write_text(f"processor\t: 0\n{line}\n")
        precision.has_fast_int8.cache_clear()
        assert precision.has_fast_int8() is expected
    precision.has_fast_int8.cache_clear()


def test_int8_that_cannot_be_had(tiny_bundle: Path) -> None:
    with pytest.raises(OptionsError, match="the bundle holds no INT8 graphs"):
        Captioner.load(tiny_bundle, device="cpu", precision="int8")
    with pytest.raises(OptionsError, match="precision must be one of auto, float32, int8"):
        Captioner.load(tiny_bundle, device="cpu", precision="int4")
    assert Captioner.load(tiny_bundle, device="cpu").precision == "float32"


def test_a_calibration_photo_that_is_none_is_named(saved: Path, photos: list[Path], tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("no photo")
    with pytest.raises(DataError, match=r"text\.jpg: not an image"):
        export_bundle(saved, tmp_path / "bundle", int8_photos=[*photos[:8], tmp_path / "text.jpg"])


def test_too_few_calibration_photos(saved: Path, photos: list[Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"at least {LEAST_PHOTOS} calibration photos, got 3"):
        export_bundle(saved, tmp_path / "bundle", int8_photos=photos[:3])
    assert not (tmp_path / "bundle").exists()
