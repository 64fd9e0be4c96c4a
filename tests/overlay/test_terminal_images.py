"""Pictures in terminals: what is sent can be read back, and only to terminals that show it."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from support.captions import make_caption

from captioner.overlay.terminal import show_caption
from captioner.overlay.terminal_images import encode, protocol_of


@pytest.fixture
def picture() -> Image.Image:
    y, x = np.mgrid[0:20, 0:90]
    return Image.fromarray(np.stack([x * 2, y * 12, x + y], -1).astype(np.uint8))


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "screen-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app", "TMUX": "x"}, None),
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
    ],
)
def test_the_environment_tells_the_protocol(environment, protocol) -> None:
    assert protocol_of(environment) == protocol


def test_kitty_and_iterm2_are_sent_the_picture(picture) -> None:
    parts = re.findall("\x1b_G([^;]*);([^\x1b]*)\x1b\\\\", encode(picture, "kitty"))
    assert parts[0][0].startswith("a=T,f=100,") and parts[-1][0].endswith("m=0")
    assert all(head.endswith("m=1") for head, _ in parts[:-1]) and all(len(data) <= 4096 for _, data in parts)
    [inline] = re.findall("\x1b]1337;File=inline=1;[^:]*:([^\x07]*)\x07", encode(picture, "iterm2"))
    for data in ("".join(data for _, data in parts), inline):
        sent = Image.open(io.BytesIO(base64.b64decode(data)))
        assert np.array_equal(np.asarray(sent), np.asarray(picture))


def test_sixels_are_the_picture(picture) -> None:
    sixels = encode(picture, "sixel")
    width, height = map(int, re.match('\x1bPq"1;1;(\\d+);(\\d+)', sixels).groups())
    palette = {int(n): c for n, *c in re.findall(r"#(\d+);2;(\d+);(\d+);(\d+)", sixels)}
    body = re.sub(r"^.*?(?=#\d+[!?-~])", "", re.sub(r"#\d+;2;\d+;\d+;\d+", "", sixels)).partition("\x1b")[0]
    drawn = np.zeros((-(-height // 6) * 6, width, 3))
    for band, lines in enumerate(body.split("-")):
        for line in lines.split("$"):
            color, runs = re.fullmatch(r"#(\d+)(.*)", line).groups()
            bits = [ord(c) - 63 for n, c in re.findall(r"!(\d+)(.)", runs) for _ in range(int(n))]
            where = np.array(bits)[None, :] >> np.arange(6)[:, None] & 1
            assert len(bits) == width
            drawn[band * 6 : band * 6 + 6][where == 1] = np.array(palette[int(color)], float) * 2.55
    assert np.abs(drawn[:height] - np.asarray(picture)).mean() < 8


def test_show_sends_the_figure_where_it_can_be_seen(picture, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm-kitty")
    monkeypatch.delenv("TMUX", raising=False)
    for keywords, sent in (
        ({"force_terminal": True, "color_system": "truecolor"}, True),
        ({"force_terminal": True, "no_color": True}, False),
        ({}, False),
    ):
        target = io.StringIO()
        show_caption(make_caption(), Console(file=target, width=80, **keywords), picture)
        assert ("\x1b_G" in target.getvalue()) == sent
