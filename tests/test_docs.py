"""The documentation names pages, headings, files, commands and flags that exist."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

from captioner.cli.parser import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def unfenced(page: Path) -> str:
    """The page without its fenced blocks: programs, diagrams, TOML."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    headings = (heading.lower() for heading in re.findall(r"^#+ (.+)$", unfenced(page), re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", unfenced(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_files_of_the_repository_that_are_named_exist(page: Path) -> None:
    for cell in re.findall(r"`tests/[^|\n]*", page.read_text()):  # a table names the folder once
        folder = ROOT
        for name in re.findall(r"`([\w/]+\.py)`", cell):
            file = ROOT / name if "/" in name else folder / name
            assert file.exists(), name
            folder = file.parent
    for name in re.findall(r"(?:python |`)((?:benchmarks|deploy|protos)/[\w/.-]+)", page.read_text()):
        assert (ROOT / name).exists(), name


def test_all_options_of_training_are_explained() -> None:
    pytest.importorskip("torch")
    options = importlib.import_module("captioner.training.config.train_options")
    text = unfenced(ROOT / "docs" / "training-options.md")
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", text))))
    tables = (options.TrainOptions, options.SourceOptions, options.StageOptions, options.ModelOptions)
    assert {field.name for table in tables for field in dataclasses.fields(table)} <= named


@cache
def flags_of(command: str) -> set[str]:
    """The long flags of a command and of its subcommands, as its help lists them."""
    subparsers = argparse.ArgumentParser().add_subparsers()
    importlib.import_module(f"captioner.cli.commands.{command}").add_parser(subparsers)
    return set(re.findall(r"--[a-z][\w-]*", subparsers.choices[command].format_help()))


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_and_their_flags_exist(page: Path) -> None:
    text = unfenced(page).replace("\\\n", " ")
    lines = re.findall(r"^    (?:\w+=\S+ )*captioner (.+)$", text, re.MULTILINE)
    for line in (*lines, *re.findall(r"`captioner ([a-z][^`]*)`", text)):
        command, _, rest = re.sub(r" [#;|].*", "", line).partition(" ")
        if "." in command or command.isupper():  # a photo alone; COMMAND
            continue
        assert command in COMMANDS, line
        if command != "model":
            flags = set(re.findall(r"(?<=\s)--[a-z][\w-]*", f" {rest}"))
            assert flags <= flags_of(command), line
