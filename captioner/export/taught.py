"""Adds what a model was taught to the graphs of the bundle that it started from.

Their nodes, their weights and the rounding of INT8 stay as they are. For a photo that is not like a corrected
one, `TaughtPhotos` adds 0 to the grid, `RareWords` adds 0 to scores, and new words are impossible:
the new bundle computes the same as before, in both precisions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, MutableSequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, compose, helper, numpy_helper
from torch import Tensor

from captioner.errors import DataError
from captioner.export.certainty import MEAN
from captioner.export.graphs import export_graph
from captioner.export.rewrites.editor import GraphEditor
from captioner.export.shared_weights import hold_weights, refer_to, session
from captioner.files.destination import writing
from captioner.files.whole_folder import folder_aside, publish_folder
from captioner.model import bundle as bundles
from captioner.model.bundle import Bundle
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.embedding import RareWords
from captioner.nn.encoder import STRIDES
from captioner.nn.encoder.taught import TaughtPhotos
from captioner.nn.model import CaptionModel
from captioner.training.weights.stored import ADDED, RARE

IMPOSSIBLE = 1e-13
"""Least factor of the probability of new words."""
NEVER = -1e4
"""What is added to the logits of new words, of which some are 30 nats above all others, for photos that are
less near than `SHUT` to those of the lessons that brought them."""
SHUT = 0.05
_PHOTOS = "encoder.taught."
"""Begins the names of the weights and values of corrected photos."""
_DEEPEST, _SUM, _NEAR, _HEARD, _LIKE, _NEAR_NEW = (
    _PHOTOS + name for name in ("deepest", "sum", "near", "heard", "like", "open")
)
_GATE = "memory.taught"
"""What is added to the logits of new words, float (batch, 1, 1)."""
_OPEN = "memory.open"
"""How near the photo is to those whose lessons brought new words, float (batch, 1, 1)."""
_RARE = "memory.rare"
"""The factors of the scores of rare words, float (batch, 1, rows)."""
_WEIGHT, _BIAS = "decoder.embedding.weight", "decoder.embedding.bias"
_NEVER = "taught.never"
"""`NEVER` for each new word, float (words,); 0 for those of models from before it."""
_CLOSE = 1e-3

Array = npt.NDArray[np.float32]
_Edit = Callable[[onnx.ModelProto], None]


def export_taught(
    start: Bundle, model: CaptionModel, words: Vocabulary, folder: Path, name: str, card: str
) -> None:
    """Write the bundle `folder`, which must not exist: `start`, with the corrected photos of `model` and the
    last of its `words`, which the graphs of `start` do not know, but not with its scores, which others have
    now. Raises `DataError` if these graphs compute something else than the network does."""
    taught, embedding = model.encoder.taught, model.decoder.embedding
    rare = embedding.rare
    assert taught is not None
    deepest, grid, scores = _places(start, model)
    photos = _photos_graph(taught)
    known = _count_words(start)
    weight, bias = (values[known:].detach().numpy() for values in (embedding.weight, embedding.bias))

    def encoder(graph: onnx.ModelProto) -> None:
        editor = GraphEditor(graph)
        if _DEEPEST not in editor.producers():  # else a model that was taught is taught more
            _add_places(editor, deepest, grid)
            if scores is not None and model.evidence is not None:
                _add_quiet(editor, scores, model.evidence.classes.bias.detach().numpy())
        _set_photos(editor, photos)
        if rare is not None:
            _add_nearness(graph, editor, len(rare.words))
        if len(weight):
            _add_gate(graph, editor)
        editor.write()

    def decoder(graph: onnx.ModelProto) -> None:
        if len(weight):
            _add_words(graph, weight, bias)
        if rare is not None:
            _add_rare(graph, rare)

    with folder_aside(folder.parent) as aside:
        place = aside / "bundle"
        place.mkdir()
        _write(place, bundles.ENCODER, start.encoder, encoder, start.int8 and start.int8[0])
        _write(place, bundles.DECODER, start.decoder, decoder, start.int8 and start.int8[1])
        words.save(place / bundles.WORDS)
        (place / bundles.CARD).write_text(card, encoding="utf-8")
        left_out = ("format", "files", "scores")
        manifest = copy.deepcopy({k: v for k, v in start.manifest.items() if k not in left_out})
        manifest["training"]["model"]["taught"] = len(taught.keys)
        manifest |= {"name": name, "parameters": sum(p.numel() for p in model.parameters())}
        bundles.write_manifest(place, manifest)
        with writing(folder):
            publish_folder(place, folder)


def _count_words(bundle: Bundle) -> int:
    """The number of words that a model knew before it was taught any."""
    return len(bundle.vocabulary) - _added_words(onnx.load_from_string(bundle.decoder))


def _added_words(decoder: onnx.ModelProto) -> int:
    """The number of words that a graph was taught."""
    return sum(one.dims[0] for one in decoder.graph.initializer if one.name.startswith(_BIAS + ADDED))


def _write(folder: Path, file: str, graph: bytes, edit: _Edit, rounded: bytes | None) -> None:
    """Write an edited graph, and its edited version in INT8, which refers to its weights."""
    exact = onnx.load_from_string(graph)
    edit(exact)
    content = exact.SerializeToString(deterministic=True)
    (folder / file).write_bytes(content)
    if rounded is not None:
        model = onnx.load_from_string(rounded)
        hold_weights(model, graph)
        edit(model)
        refer_to(model, content, file)
        (folder / file.replace(".onnx", ".int8.onnx")).write_bytes(
            model.SerializeToString(deterministic=True)
        )


@torch.no_grad()
def _places(start: Bundle, model: CaptionModel) -> tuple[str, str, str | None]:
    """The names that the deepest output, the grid and the class scores, before anything was added, have in
    the encoder's graph. Models without classes have no scores.

    Exporters name values as they like, so they are found by what they are for two images of noise."""
    size, (rows, columns) = start.image_size, start.grid
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, size, size, 3), dtype=torch.uint8, generator=generator)
    feeds: dict[str, npt.NDArray[np.generic]] = {"pixels": pixels.numpy()}
    mask = None
    if start.letterbox is not None:
        mask = torch.ones(2, rows * columns, dtype=torch.bool)
        feeds["mask"] = mask.numpy()
    encoder = model.encoder
    outputs = encoder.outputs(encoder.inputs(pixels), 0, len(STRIDES))
    graph = onnx.load_from_string(start.encoder)
    names = [name for node in graph.graph.node for name in node.output if name]
    del graph.graph.output[:]
    graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    values = dict(zip(names, session(graph.SerializeToString()).run(names, feeds), strict=True))
    scores = None if model.evidence is None else _name(values, model.evidence.class_logits(outputs[-1]))
    return _name(values, outputs[-1]), _name(values, encoder.untaught(outputs, mask)), scores


def _name(values: dict[str, npt.NDArray[np.generic]], wanted: Tensor) -> str:
    array = wanted.numpy()
    most = _CLOSE * np.abs(array).max()
    for name, value in values.items():
        if value.shape == array.shape and np.abs(value - array).max() < most:
            return name
    raise DataError("the graphs of the model do not compute what its network does, so it cannot be taught")


def _photos_graph(taught: TaughtPhotos) -> onnx.ModelProto:
    deepest = torch.zeros(2, taught.keys.shape[1], 3, 5)
    dynamic = (dict.fromkeys((0, 2, 3), torch.export.Dim.DYNAMIC),)
    return compose.add_prefix(
        export_graph(taught, (deepest,), dynamic, ["deepest"], ["sum", "near", "heard", "like", "open"]),
        _PHOTOS,
    )


def _add_places(editor: GraphEditor, deepest: str, grid: str) -> None:
    """Read the deepest output, and add the sum to the grid."""
    read = f"{deepest}.read"
    editor.add("Identity", [read if read in editor.producers() else deepest], [_DEEPEST])
    editor.add("Add", [_untaught(editor, grid), _SUM], [grid])


def _add_quiet(editor: GraphEditor, scores: str, bias: Array) -> None:
    """Scale the scores of classes (batch, cells, classes), all but their `bias` (classes,). The certainty of
    the model stays what it was."""
    axis = editor.constant("taught.cells", np.array([-1]))
    one = editor.constant("taught.one", np.array(1, dtype=np.float32))
    classes = editor.constant("taught.classes.bias", bias)
    editor.add("Unsqueeze", [_HEARD, axis], ["taught.heard"])
    editor.add("Sub", [one, "taught.heard"], ["taught.unheard"])
    untaught = _untaught(editor, scores)
    for node in editor.nodes:
        if node.output[0] == MEAN:
            node.input[0] = untaught
    editor.add("Mul", [untaught, "taught.heard"], ["taught.scores"])
    editor.add("Mul", [classes, "taught.unheard"], ["taught.classes"])
    editor.add("Add", ["taught.scores", "taught.classes"], [scores])


def _untaught(editor: GraphEditor, value: str) -> str:
    """The new name of what a node gives, so that another node can give `value`."""
    giver, name = editor.producers()[value], f"{value}.untaught"
    giver.output[list(giver.output).index(value)] = name
    return name


def _set_photos(editor: GraphEditor, photos: onnx.ModelProto) -> None:
    """Put the nodes and the weights of all photos in place of those of earlier ones."""
    editor.remove(node for node in editor.nodes if node.name.startswith(_PHOTOS))
    editor.nodes += photos.graph.node
    editor.replace_initializers(_PHOTOS, photos.graph.initializer)


def _add_gate(model: onnx.ModelProto, editor: GraphEditor) -> None:
    """Put out how likely new words may be, and how near photos are that they are meant for."""
    axis = editor.constant("taught.axis", np.array([-1]))
    if _GATE not in editor.producers():
        least = editor.constant("taught.impossible", np.array(IMPOSSIBLE, dtype=np.float32))
        editor.add("Max", [_NEAR, least], ["taught.share"])
        editor.add("Log", ["taught.share"], ["taught.log"])
        editor.add("Unsqueeze", ["taught.log", axis], [_GATE])
    if _OPEN not in editor.producers():
        editor.add("Unsqueeze", [_NEAR_NEW, axis], [_OPEN])
    for name in (_GATE, _OPEN):
        _declare(model.graph.output, name, 1)


def _add_nearness(model: onnx.ModelProto, editor: GraphEditor, rows: int) -> None:
    """Put out how near the photo is to those whose corrections have the rare words."""
    if _RARE not in editor.producers():
        editor.add("Unsqueeze", [_LIKE, editor.constant("rare.axis", np.array([1]))], [_RARE])
    _declare(model.graph.output, _RARE, rows)


def _add_words(model: onnx.ModelProto, weight: Array, bias: Array) -> None:
    """Give a step the new words, (words, embedding) and (words,), in place of earlier ones."""
    earlier = _added_words(model)
    new = {
        name + ADDED: numpy_helper.from_array(one, name + ADDED)
        for name, one in ((_WEIGHT, weight), (_BIAS, bias))
    }
    editor = GraphEditor(model)
    never = np.full(len(weight), NEVER, dtype=np.float32)
    before = editor.array(_NEVER)
    never[:earlier] = 0 if before is None else before
    new[_NEVER] = numpy_helper.from_array(never, _NEVER)
    editor.remove(node for node in editor.nodes if node.output[0] in new)  # that widen earlier ones
    editor.replace_initializers(tuple(new), new.values())
    [log_probs] = [value for value in model.graph.output if value.name == "log_probs"]
    words = log_probs.type.tensor_type.shape.dim[2]
    if not earlier:
        _splice_words(model, editor, words.dim_value)
    if before is None:
        _bar_words(model, editor)
    editor.write()
    words.dim_value += len(weight) - earlier


def _splice_words(model: onnx.ModelProto, editor: GraphEditor, known: int) -> None:
    """Compute logits of the new words too. Whatever else reads a word, such as the checklist, sees padding
    instead of them."""
    producers = editor.producers()
    _declare(model.graph.input, _GATE, 1)
    number = editor.constant("taught.known", np.array(known))
    padding = editor.constant("taught.padding", np.array(Vocabulary.pad_id))
    for node in editor.nodes:
        if node.op_type == "Gather" and node.input[0] == _WEIGHT:
            node.input[0] = "taught.embedding"
        elif "tokens" in node.input:
            node.input[list(node.input).index("tokens")] = "tokens.known"
    editor.add("Less", ["tokens", number], ["tokens.is_known"])
    editor.add("Where", ["tokens.is_known", "tokens", padding], ["tokens.known"])
    editor.add("Concat", [_WEIGHT, _WEIGHT + ADDED], ["taught.embedding"], axis=0)
    editor.add("Transpose", [_WEIGHT + ADDED], ["taught.columns"], perm=[1, 0])
    editor.add("MatMul", [_output(editor), "taught.columns"], ["taught.product"])
    editor.add("Add", [_BIAS + ADDED, _GATE], ["taught.bias"])
    editor.add("Add", ["taught.product", "taught.bias"], ["taught.logits"])
    last = producers["log_probs"]
    editor.add("Concat", [last.input[0], "taught.logits"], ["logits"], axis=-1)
    last.input[0] = "logits"


def _bar_words(model: onnx.ModelProto, editor: GraphEditor) -> None:
    """Make new words impossible for photos that they are not meant for."""
    _declare(model.graph.input, _OPEN, 1)
    reader = editor.producers()["taught.logits"]
    reader.input[list(reader.input).index("taught.bias")] = "taught.closed"
    limit, none = (
        editor.constant(f"taught.{name}", np.array(value, dtype=np.float32))
        for name, value in (("shut", SHUT), ("none", 0.0))
    )
    editor.add("Less", [_OPEN, limit], ["taught.is_shut"])
    editor.add("Where", ["taught.is_shut", _NEVER, none], ["taught.barred"])
    editor.add("Add", ["taught.bias", "taught.barred"], ["taught.closed"])


def _add_rare(model: onnx.ModelProto, rare: RareWords) -> None:
    """Add the scores of rare words to a step, in place of earlier ones."""
    new = {
        RARE + name: numpy_helper.from_array(values.numpy(), RARE + name)
        for name, values in rare.state_dict().items()
    }
    editor = GraphEditor(model)
    editor.remove(node for node in editor.nodes if node.output[0] in new)  # that widen earlier ones
    editor.replace_initializers(RARE, new.values())
    if "rare.scores" not in editor.producers():
        _splice_rare(editor)
    _declare(model.graph.input, _RARE, len(rare.words))
    editor.write()


def _splice_rare(editor: GraphEditor) -> None:
    last = editor.producers()["log_probs"]
    editor.add("Transpose", [f"{RARE}weight"], ["rare.columns"], perm=[1, 0])
    editor.add("MatMul", [_output(editor), "rare.columns"], ["rare.product"])
    editor.add("Add", ["rare.product", f"{RARE}bias"], ["rare.sum"])
    editor.add("Mul", ["rare.sum", _RARE], ["rare.scores"])
    editor.add("Shape", ["rare.scores"], ["rare.shape"])
    editor.add("Expand", [f"{RARE}words", "rare.shape"], ["rare.words"])
    scattered = [last.input[0], "rare.words", "rare.scores"]
    last.input[0] = editor.add("ScatterElements", scattered, ["rare.logits"], axis=-1, reduction="add")


def _output(editor: GraphEditor) -> str:
    """What a step compares with the words."""
    [reader] = [node for node in editor.nodes if _BIAS in node.input and _BIAS not in node.output]
    if reader.op_type == "Gemm":
        return str(reader.input[0])
    product = editor.producers()[next(name for name in reader.input if name != _BIAS)]
    return str(product.input[0])


def _declare(values: MutableSequence[onnx.ValueInfoProto], name: str, size: int) -> None:
    """Put an input or output, float (batch, 1, size), in the place of an earlier one of that name."""
    batch = values[0].type.tensor_type.shape.dim[0].dim_param
    kept = [value for value in values if value.name != name]
    del values[:]
    values.extend([*kept, helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 1, size])])
