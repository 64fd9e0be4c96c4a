"""Results as Markdown, and their place in a document."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measures import machine
from measures.bench import Table


def render(results: dict[str, Any]) -> str:
    parts = [f"Measured on {machine.sentence(results['machine'])}"]
    parts += [f"    {results['command']}"] if "command" in results else []
    for tables in results["sections"].values():
        for table in tables:
            parts += [f"### {table['title']}"] if table["title"] else []
            parts += [_table(table["rows"])]
            parts += [table["note"]] if table["note"] else []
    if "holds" in results:
        rows = [
            {"check": what, "holds": "yes" if good else "**no**"} for what, good in results["holds"].items()
        ]
        parts += ["### Checks", _table(rows)]
    if results["skipped"]:
        parts += ["Not measured:", "\n".join(f"- {line}" for line in results["skipped"])]
    return "\n\n".join(parts)


def existing(name: str) -> Path:
    """The type of an argument that names a document to write to; a missing one is reported at once."""
    if not (document := Path(name)).is_file():
        raise ArgumentTypeError(f"{name} does not exist")
    if (document.parent / "bundle.json").exists():
        raise ArgumentTypeError(
            f"{name} is part of a bundle: write to the card that captioner export is given"
        )
    return document


def write(document: Path, results: dict[str, Any], name: str) -> None:
    """Put the tables between the markers of that name in a document."""
    put_between(document, name, render(results))


def put_between(document: Path, name: str, content: str) -> None:
    """Replace what is between the lines <!-- NAME --> and <!-- /NAME --> of a document."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    text = document.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{document} lacks the line {begin} or {end}")
    document.write_text(f"{before}{begin}\n\n{content}\n\n{end}{after}", encoding="utf-8")


def show(table: Table, about: dict[str, Any], document: Path | None, name: str) -> None:
    """Write one table and the machine that it is from between the markers of a document, or print both."""
    results = {"machine": about, "sections": {name: [asdict(table)]}, "skipped": []}
    if document:
        write(document, results, name)
    else:
        print(render(results))


def _table(rows: list[dict[str, Any]]) -> str:
    heads = list(dict.fromkeys(name for row in rows for name in row))
    numeric = [not any(isinstance(row.get(head), str) for row in rows) for head in heads]
    lines = [heads, ["---:" if number else "---" for number in numeric]]
    lines += [[_shown(row.get(head)) for head in heads] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        if 0.995 <= value < 1:  # what matters of a share is how much is missing
            return f"{value:.5f}"
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
