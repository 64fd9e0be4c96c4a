"""Bundles that a stranger made: what they may not do is refused in one line, before anything is loaded."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.errors import BundleError
from captioner.model.bundle import DECODER, DEFAULT, ENCODER, MANIFEST, WORDS, Bundle
from captioner.model.calibration import Calibration
from captioner.model.graphs.check import GraphError, check_graph

onnx = pytest.importorskip("onnx", reason="onnx makes the graphs")
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def renew(folder: Path, edit: Callable[[dict], object] = lambda manifest: None) -> None:
    """Make bundle.json describe what the folder holds now."""
    manifest = json.loads((folder / MANIFEST).read_text())
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    edit(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def refusal(folder: Path) -> str:
    with pytest.raises(BundleError) as caught:
        Bundle.load(folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and len(message) < 400 and message.isprintable()
    return message


def graph(*nodes: object, constants: list[object] = (), output: str = "y") -> bytes:
    made = onnx.helper.make_graph(
        list(nodes), "g", [], [onnx.helper.make_tensor_value_info(output, FLOAT, None)], list(constants)
    )
    return onnx.helper.make_model(made).SerializeToString()


def shape(name: str, *sides: int, raw: bool = True) -> object:
    if raw:
        return onnx.numpy_helper.from_array(np.array(sides, np.int64), name)
    return onnx.helper.make_tensor(name, INT64, [len(sides)], list(sides))


def external() -> bytes:
    tensor = onnx.TensorProto(name="w", data_type=FLOAT, dims=[4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../../etc/passwd")
    return graph(onnx.helper.make_node("Identity", ["w"], ["y"]), constants=[tensor])


def external_within() -> bytes:
    inner = onnx.ModelProto.FromString(external()).graph
    constant = onnx.helper.make_tensor("c", onnx.TensorProto.BOOL, [], [True])
    branch = onnx.helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    return graph(branch, constants=[constant])


def huge(operator: str, *inputs: str, raw: bool = True) -> bytes:
    one = onnx.numpy_helper.from_array(np.ones(1, np.float32), "one")
    constants = [shape("s", 2**20, 2**20, raw=raw), one]
    return graph(onnx.helper.make_node(operator, inputs, ["y"]), constants=constants)


def huge_by_node() -> bytes:
    constant = onnx.helper.make_node("Constant", [], ["s"], value=shape("", 2**40))
    return graph(constant, onnx.helper.make_node("ConstantOfShape", ["s"], ["y"]))


def multiplied(operator: str, *inputs: str) -> bytes:
    product = onnx.helper.make_node("Mul", ["s", "s"], ["product"])
    return graph(
        product, onnx.helper.make_node(operator, inputs, ["y"]), constants=[shape("s", 40_000, 40_000)]
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (external(), "external data"),
        (external_within(), "contains another graph"),
        (huge("ConstantOfShape", "s"), "ConstantOfShape makes a tensor"),
        (huge("ConstantOfShape", "s", raw=False), "ConstantOfShape makes a tensor"),
        (huge("Expand", "one", "s"), "Expand makes a tensor"),
        (huge_by_node(), "ConstantOfShape makes a tensor"),
        (multiplied("ConstantOfShape", "product"), "a shape that Mul computes"),
        (multiplied("Expand", "s", "product"), "a shape that Mul computes"),
        (graph(onnx.helper.make_node("RandomNormal", [], ["y"], shape=[40_000, 40_000])), "'RandomNormal'"),
        (graph(onnx.helper.make_node("Range", ["s", "s", "s"], ["y"]), constants=[shape("s", 1)]), "(Range)"),
        (graph(onnx.helper.make_node("Tile", ["s", "s"], ["y"]), constants=[shape("s", 1)]), "'Tile'"),
        (
            graph(onnx.helper.make_node("Resize", ["s", "", "s"], ["y"]), constants=[shape("s", 9)]),
            "by a factor",
        ),
        (graph(onnx.helper.make_node("Conv", ["s", "s"], ["y"], pads=[9999] * 4)), "pads a tensor"),
        (graph(onnx.helper.make_node("Evil", [], ["y"], domain="evil")), "'evil.Evil'"),
        (graph(onnx.helper.make_node("Relu", ["s"], ["y"], domain="com.microsoft")), "'com.microsoft.Relu'"),
        (b"\xff" * 20, "not in the format of ONNX"),
        (b"\x3a\x7f", "not in the format of ONNX"),
    ],
)
@pytest.mark.parametrize("name", [ENCODER, DECODER])
def test_a_graph_that_reaches_out_or_fills_the_memory(
    copy: Path, name: str, content: bytes, reason: str
) -> None:
    (copy / name).write_bytes(content)
    renew(copy)
    assert reason in refusal(copy)


def test_the_graphs_of_the_embedded_model_pass() -> None:
    Bundle.load(DEFAULT)


@given(st.binary(max_size=300))
def test_whatever_the_bytes_the_check_ends(content: bytes) -> None:
    with contextlib.suppress(GraphError):
        check_graph(content)


@pytest.mark.parametrize("name", [ENCODER, WORDS, MANIFEST, "MODEL_CARD.md"])
@pytest.mark.parametrize("target", ["/dev/zero", "/etc/passwd", "elsewhere"])
def test_links_are_not_followed(copy: Path, name: str, target: str) -> None:
    (copy / name).rename(copy.parent / "elsewhere")
    (copy / name).symlink_to(copy.parent / target)
    assert "is a link" in refusal(copy)


def test_a_pipe_is_no_file(copy: Path) -> None:
    (copy / WORDS).unlink()
    os.mkfifo(copy / WORDS)
    assert "not a plain file" in refusal(copy)


def test_a_file_that_is_too_large(copy: Path) -> None:
    with (copy / WORDS).open("r+b") as file:
        file.truncate(2**40)
    assert "the limit is" in refusal(copy)


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest.update(grid=[-4, -4]),
        lambda manifest: manifest.update(grid=[0, 4]),
        lambda manifest: manifest.update(grid=[10**9, 10**9]),
        lambda manifest: manifest.update(grid=[4.5, 4]),
        lambda manifest: manifest.update(grid=[10**400, 4]),
        lambda manifest: manifest["image"].update(size=-64),
        lambda manifest: manifest["image"].update(size=10**9),
    ],
)
def test_sizes_that_cannot_be(copy: Path, edit: Callable[[dict], object]) -> None:
    renew(copy, edit)
    assert "must be from 1 to" in refusal(copy)


@pytest.mark.parametrize("word", ["\x1b[31mred", "a\rb", "\x00", "x" * 101, "\u202egnp", " a\u2028b", ""])
def test_words_that_are_none(copy: Path, word: str) -> None:
    words = (copy / WORDS).read_text().split("\n")
    words[10] = word
    (copy / WORDS).write_bytes("\n".join(words).encode())
    renew(copy)
    assert "word 11 of the vocabulary" in refusal(copy)


def test_a_vocabulary_without_end(copy: Path) -> None:
    with (copy / WORDS).open("a") as file:
        file.writelines(f"w{number:07}\n" for number in range(1_000_001))
    renew(copy)
    assert "the limit is 1000000" in refusal(copy)


@pytest.mark.parametrize("text", ["", "a" * 1001, "a\tb", "a\nb", "\x1b[31mX", "\u202egnp", ["a"], 3, {}])
@pytest.mark.parametrize("field", ["name", "language", "event"])
def test_texts_that_clients_and_terminals_get(copy: Path, field: str, text: object) -> None:
    entry = {"confidence": {"slope": 1, "intercept": 0, "event": text}} if field == "event" else {field: text}
    renew(copy, lambda manifest: manifest.update(entry))
    assert f"{field} " in refusal(copy)


@pytest.mark.parametrize(
    "entry",
    [{"name": "a\ud800"}, {"language": "\udfff"}, {"training": {"a": ["\ud800"]}}, {"scores": {"\ud800": 1}}],
)
def test_half_of_a_character_anywhere(copy: Path, entry: dict) -> None:
    """Neither protobuf nor a terminal takes it."""
    renew(copy, lambda manifest: manifest.update(entry))
    assert "half of a character" in refusal(copy)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"heads": "\x1b]0;owned\x07"}, "the number of heads must be"),
        ({"heads": 0}, "the number of heads must be"),
        ({"parameters": "many"}, "the number of parameters must be"),
        ({"parameters": [1]}, "the number of parameters must be"),
        ({"training": ["a"]}, "training must be an object"),
        ({"training": {"model": 5}}, "model must be an object"),
        ({"training": {"model": {"bonus": "a"}}}, "bonus must be an object"),
        ({"training": {"model": {"checklist_weight": "a"}}}, "malformed"),
        ({"training": {"model": {"bonus": {"checklist_power": 10**400}}}}, "malformed"),
    ],
)
def test_entries_of_other_types(copy: Path, entry: dict, reason: str) -> None:
    renew(copy, lambda manifest: manifest.update(entry))
    assert reason in refusal(copy)


@pytest.mark.parametrize("slope", [10**400, "nan", "inf", "steep", [1]])
def test_a_confidence_that_no_curve_gives(copy: Path, slope: object) -> None:
    entry = {"slope": slope, "intercept": 0, "event": "good"}
    renew(copy, lambda manifest: manifest.update(confidence=entry))
    assert Calibration.of(Bundle.load(copy).manifest) is None
