"""A CLIP image encoder that trains and exports in seconds, found by its name, and ONNX files of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from captioner.nn.encoder.clip import SIZES, ClipEncoder, ClipSizes

NAME = "tiny_clip"
SIZES[NAME] = ClipSizes(width=96, heads=4, blocks=2, hidden=160, space=32, image_size=64)
_NAMES = {
    "entry_norm": "pre_layrnorm",
    "attention_norm": "layer_norm1",
    "perceptron_norm": "layer_norm2",
    "norm": "post_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.out_proj",
    "expand": "mlp.fc1",
    "shrink": "mlp.fc2",
    "photo": "embeddings.class_embedding",
    "patches": "embeddings.patch_embedding",
    "places": "embeddings.position_embedding.weight",
}


def write_file(encoder: ClipEncoder, path: Path, int8: bool) -> None:
    """The weights of `encoder` as an exporter writes them; in INT8 they are rounded. The graph has only the
    products."""
    tensors, nodes = [], []
    for name, value in encoder.state_dict().items():
        array = value.numpy()
        stem, _, kind = name.rpartition(".")
        product = kind == "weight" and stem.split(".")[-1] in (
            "query",
            "key",
            "value",
            "output",
            "expand",
            "shrink",
            "projection",
        )
        if name.endswith(("photo_mean", "slope")):
            continue
        theirs = ".".join(_NAMES.get(part, part) for part in name.split(".")).replace(
            "blocks.", "encoder.layers."
        )
        if not product:
            tensors.append(numpy_helper.from_array(array, f"vision_model.{theirs}"))
            continue
        place = theirs.removesuffix(".weight").replace("encoder.layers.", "encoder/layers#").replace(".", "/")
        output = f"/vision_model/{place.replace('#', '.')}/MatMul_output_0"
        if stem == "projection":
            output = "image_embeds"
        weight = f"onnx::MatMul_{len(nodes)}"
        if not int8:
            tensors.append(numpy_helper.from_array(array.T.copy(), weight))
            nodes.append(helper.make_node("MatMul", ["tokens", weight], [output]))
            continue
        scale = np.abs(array).max(axis=1) / 127
        zero = np.arange(len(array), dtype=np.int8) % 3
        rounded = (np.round(array / scale[:, None]).clip(-124, 124) + zero[:, None]).astype(np.int8)
        for suffix, values in (("quantized", rounded.T.copy()), ("scale", scale), ("zero_point", zero)):
            tensors.append(numpy_helper.from_array(values, f"{weight}_{suffix}"))
        inputs = ["tokens_quantized", f"{weight}_quantized", "tokens_zero_point", f"{weight}_zero_point"]
        nodes.append(helper.make_node("MatMulInteger", inputs, [f"{output}_output_quantized"]))
    tokens = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, None)
    onnx.save(helper.make_model(helper.make_graph(nodes, "encoder", [tokens], [], tensors)), path)
