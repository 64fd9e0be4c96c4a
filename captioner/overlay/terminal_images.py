"""Pictures in terminals that can show them: the protocols of kitty and iTerm2, and sixel."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping

import numpy as np
from PIL import Image

_KITTY_CHUNK = 4096
"""Longest part of a picture in one escape sequence of kitty, in characters."""
_SIXEL_TERMINALS = ("foot", "mlterm", "contour", "yaft")
_SIXEL_COLORS = 128


def protocol_of(environment: Mapping[str, str]) -> str | None:
    """The image protocol of the terminal, by its environment variables: "kitty", "iterm2" or "sixel"; None if
    it has none, and inside tmux and screen, which do not pass images on."""
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if "TMUX" in environment or term.startswith(("screen", "tmux")):
        return None
    if "KITTY_WINDOW_ID" in environment or term in ("xterm-kitty", "xterm-ghostty") or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty") or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    if "sixel" in term or term.startswith(_SIXEL_TERMINALS):
        return "sixel"
    return None


def encode(picture: Image.Image, protocol: str) -> str:
    """The escape sequences that show an RGB picture."""
    if protocol == "sixel":
        return _sixel(picture)
    file = io.BytesIO()
    picture.save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    if protocol == "iterm2":
        return f"\x1b]1337;File=inline=1;size={len(file.getvalue())};preserveAspectRatio=1:{data}\x07\n"
    parts = [data[start : start + _KITTY_CHUNK] for start in range(0, len(data), _KITTY_CHUNK)]
    heads = ["a=T,f=100,", *[""] * (len(parts) - 1)]
    more = [*[1] * (len(parts) - 1), 0]
    return (
        "".join(
            f"\x1b_G{head}m={rest};{part}\x1b\\" for head, rest, part in zip(heads, more, parts, strict=True)
        )
        + "\n"
    )


def _sixel(picture: Image.Image) -> str:
    """Encode six rows at a time; each colour is a line of characters whose bits mark its pixels."""
    paletted = picture.quantize(_SIXEL_COLORS)
    palette = np.array(paletted.getpalette(), dtype=int).reshape(-1, 3) * 100 // 255
    pixels = np.asarray(paletted)
    pixels = np.pad(pixels, ((0, -len(pixels) % 6), (0, 0)), mode="edge")
    colors = "".join(f"#{at};2;{red};{green};{blue}" for at, (red, green, blue) in enumerate(palette))
    bands = (_band(rows) for rows in pixels.reshape(-1, 6, pixels.shape[1]))
    return f'\x1bPq"1;1;{picture.width};{picture.height}{colors}{"-".join(bands)}\x1b\\\n'


def _band(rows: np.ndarray) -> str:
    lines = []
    for color in np.unique(rows):
        bits = ((rows == color) << np.arange(6)[:, None]).sum(axis=0) + 63
        # Runs of a letter are written as their length: most of a line is empty.
        starts = np.flatnonzero(np.diff(bits, prepend=-1))
        lengths = np.diff(np.append(starts, len(bits)))
        runs = (f"!{length}{chr(bits[start])}" for start, length in zip(starts, lengths, strict=True))
        lines.append(f"#{color}{''.join(runs)}")
    return "$".join(lines)
