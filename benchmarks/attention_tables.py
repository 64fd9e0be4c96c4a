"""The tables and pictures of docs/attentions.md, from what attentions.py has measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measures.markdown import put_between

from captioner import Captioner
from captioner_client import render_overlay

SETS = {"flickr8k": "Flickr8k", "coco": "COCO"}
WIDTH = 720
Record = Mapping[str, Any]


def write_tables(document: Path, work: Path, titles: Mapping[str, str], photo: Path) -> None:
    """Put all that `work` holds between the markers of `document`; pictures go into a folder of its name."""
    records = [json.loads(path.read_text()) for path in sorted(work.glob("*.json"))]
    first = {name: record for name in titles for record in records if _is(record, name, 1)}
    parts = [_quality(first, titles), _cost(first, titles), _honesty(first, titles), _seeds(records, titles)]
    parts.append(_pictures(first, titles, document, work, photo))
    put_between(document, "tables", "\n\n".join(part for part in parts if part))


def _is(record: Record, name: str, seed: int) -> bool:
    return bool(record["variant"] == name and record["seed"] == seed)


def _quality(first: Mapping[str, Record], titles: Mapping[str, str]) -> str:
    heads = ["attention, decoder"]
    for title in SETS.values():
        heads += [f"{title} BLEU-4", "METEOR", "CIDEr"]
    rows = []
    for name, record in first.items():
        row = [titles[name]]
        for data in SETS:
            scores = record["scores"][data]
            meteor = next(key for key in scores if key.startswith("meteor"))
            row += [_scored(scores, metric) for metric in ("bleu_4", meteor, "cider")]
        rows.append(row)
    return _table(heads, rows)


def _scored(scores: Record, name: str) -> str:
    low, high = scores["intervals"][name]
    return f"{scores[name]:.1f} ({low:.1f}–{high:.1f})"


def _cost(first: Mapping[str, Record], titles: Mapping[str, str]) -> str:
    heads = [
        "attention, decoder",
        "parameters",
        "ms a step, batch 1",
        "batch 32",
        "training, CPU s",
        "mean loss",
    ]
    rows = [
        [
            titles[name],
            f"{record['parameters'] / 1e6:.2f} M",
            *(f"{record['step_ms'][size]:.2f}" for size in ("1", "32")),
            f"{record['training_seconds']:.0f}",
            f"{record['loss']:.2f}",
        ]
        for name, record in first.items()
    ]
    return _table(heads, rows)


def _honesty(first: Mapping[str, Record], titles: Mapping[str, str]) -> str:
    heads = ["attention, decoder", "fall, top cells", "random", "another word's", "uniform"]
    heads += ["top / random", "divergence", "cells", "sentinel: content, function"]
    rows = []
    for name, record in first.items():
        found = record["faithfulness"]
        low, high = found["intervals"]["top_to_random"]
        shares = [found["content_sentinel"], found["function_sentinel"]]
        rows.append(
            [
                titles[name],
                *(f"{found[f'fall_{what}']:.3f}" for what in ("top", "random", "shuffled", "uniform")),
                f"{_ratio(found['top_to_random'])} ({_ratio(low)}–{_ratio(high)})",
                f"{found['divergence']:.2f}",
                f"{found['perplexity']:.0f}",
                ", ".join(f"{share:.2f}" for share in shares) if max(shares) > 1e-3 else "–",
            ]
        )
    return _table(heads, rows)


def _ratio(value: float) -> str:
    return "> 100" if value > 100 else f"{value:.1f}"


def _seeds(records: list[Record], titles: Mapping[str, str]) -> str:
    rows = []
    for name, title in titles.items():
        runs = sorted((r for r in records if r["variant"] == name), key=lambda r: int(r["seed"]))
        if len(runs) < 2:
            continue
        row = [title]
        for data in SETS:
            values = [run["scores"][data]["cider"] for run in runs]
            each = ", ".join(f"{value:.1f}" for value in values)
            row.append(f"{each}: {statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}")
        falls = [run["faithfulness"]["fall_top"] for run in runs]
        row.append(", ".join(f"{fall:.3f}" for fall in falls))
        rows.append(row)
    heads = ["leaders", *(f"{title} CIDEr, by seed" for title in SETS.values()), "fall, top cells"]
    return _table(heads, rows) if rows else ""


def _pictures(
    first: Mapping[str, Record], titles: Mapping[str, str], document: Path, work: Path, photo: Path
) -> str:
    folder = document.with_suffix("")
    folder.mkdir(exist_ok=True)
    lines = []
    for name in first:
        place = folder / f"{name}.webp"
        captioner = Captioner.load(work / f"{name}-1.bundle", device="cpu", threads=1)
        [caption] = captioner.caption([photo])
        render_overlay(photo, caption, width=WIDTH).save(place, quality=50, method=6)
        lines += [f"**{titles[name]}**: {caption.text}", f"![{caption.text}]({folder.name}/{place.name})"]
    return "\n\n".join(lines)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
