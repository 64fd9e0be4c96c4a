"""Decoders under one step contract. A new one is one file and one line in `DECODERS`."""

from __future__ import annotations

from captioner.nn.decoder.base import Decoder, Step, Tensors, expand_beams
from captioner.nn.decoder.lstm import LSTMDecoder
from captioner.nn.decoder.two_lstm import TwoLSTMDecoder

DECODERS: dict[str, type[LSTMDecoder]] = {
    "lstm": LSTMDecoder,
    "two_lstm": TwoLSTMDecoder,
}

__all__ = ["DECODERS", "Decoder", "LSTMDecoder", "Step", "Tensors", "TwoLSTMDecoder", "expand_beams"]
