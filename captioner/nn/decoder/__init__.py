"""Decoders under one step contract. A new one is one file and one line in `DECODERS`."""

from __future__ import annotations

from captioner.nn.decoder.base import Decoder, DecoderSizes, Step, Tensors, every_cell, expand_beams
from captioner.nn.decoder.lstm import LSTMDecoder
from captioner.nn.decoder.transformer import TransformerDecoder
from captioner.nn.decoder.two_lstm import TwoLSTMDecoder
from captioner.nn.decoder.up_down import UpDownDecoder

DECODERS: dict[str, type[Decoder]] = {
    "lstm": LSTMDecoder,
    "two_lstm": TwoLSTMDecoder,
    "up_down": UpDownDecoder,
    "transformer": TransformerDecoder,
}

__all__ = [
    "DECODERS",
    "Decoder",
    "DecoderSizes",
    "LSTMDecoder",
    "Step",
    "Tensors",
    "TransformerDecoder",
    "TwoLSTMDecoder",
    "UpDownDecoder",
    "every_cell",
    "expand_beams",
]
