"""`captioner caption --show`: words and maps for every kind of terminal."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from support.captions import HOSTILE_TEXTS, make_caption

from captioner.overlay.terminal import show_caption

PHOTO = Image.new("RGB", (64, 48), "grey")


def shown(caption, photo=PHOTO, **terminal) -> str:
    target = io.TextIOWrapper(io.BytesIO(), encoding=terminal.pop("encoding", "utf-8"), errors="replace")
    show_caption(caption, Console(file=target, width=80, **terminal), photo)
    target.flush()
    return target.buffer.getvalue().decode(target.encoding)


def test_a_pipe_gets_words_and_probabilities_alone():
    assert shown(make_caption()) == "a    small  lit  place\n20%  38%    55%  72%\n\n"


def test_a_terminal_gets_colours_and_half_blocks():
    text = shown(make_caption(), force_terminal=True, color_system="truecolor")
    assert "\x1b[1;31ma\x1b[0m" in text  # 20 %: red
    assert "\x1b[1;33mlit" in text  # 55 %: yellow
    assert "\x1b[1;32mplace" in text  # 72 %: green
    assert text.count("▀") >= 4 * 16 * 6
    assert "38;2;" in text


def test_256_colours_are_enough():
    photo = Image.new("RGB", (64, 48), "white")  # rich remembers the codes of styles it has shown
    text = shown(make_caption(), photo, force_terminal=True, color_system="256")
    assert "38;5;" in text
    assert "38;2;" not in text


@pytest.mark.parametrize("terminal", [{"no_color": True}, {"color_system": None}])
def test_without_colours_maps_are_shaded(terminal):
    text = shown(make_caption(), force_terminal=True, **terminal)
    assert "█" in text
    assert "▀" not in text
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text)


def test_no_color_in_the_environment_is_honoured(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", shown(make_caption(), force_terminal=True))


def test_a_terminal_without_block_letters_gets_no_maps():
    text = shown(make_caption(), force_terminal=True, color_system="standard", encoding="latin-1")
    assert "place" in text
    assert "?" not in text


def test_the_map_lights_the_place_that_was_looked_at():
    weights = np.zeros((14, 14), np.float32)
    weights[1, 12] = 1
    lines = shown(make_caption(("top",), [weights]), force_terminal=True, no_color=True).splitlines()
    bright = [match.start() for line in lines for match in re.finditer("[▓█]", line)]
    assert bright
    assert all(12 <= column <= 15 for column in bright)


def test_hostile_texts_send_no_commands():
    text = shown(make_caption(HOSTILE_TEXTS), force_terminal=True, color_system="truecolor")
    assert "\x1b[31m\x1b" not in text
    assert "\u202e" not in text
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in text.splitlines()) <= 90


def test_no_words_still_show_the_caption():
    assert "a cat" in shown(make_caption(("a", "cat"))).replace("  ", " ").replace("  ", " ")
