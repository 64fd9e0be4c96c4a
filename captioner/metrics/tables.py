"""What scores are called in tables for people, and such a table in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from captioner.metrics.evaluation import Scores
from captioner.metrics.naming import NamingScores
from captioner.printable import counted

_LABELS = {
    **{f"bleu_{n}": f"BLEU-{n}" for n in range(1, 5)},
    "rouge_l": "ROUGE-L",
    "cider": "CIDEr-D",
    "chair_i": "objects that are not there (CHAIRi)",
    "chair_s": "captions with such (CHAIRs)",
    "object_recall": "objects mentioned (recall)",
    "named": "name what is there",
    "by_chance": "would be right by chance",
    "score": "score: the difference",
    "exactly": "say the exact word",
}
_DIVERSITY = {
    "distinct_1": ("distinct words / words", "{:.3f}"),
    "distinct_2": ("distinct pairs / pairs", "{:.3f}"),
    "vocabulary": ("distinct words", "{:d}"),
    "mean_length": ("words a caption", "{:.2f}"),
    "repeated": ("shared by several images", "{:.1%}"),
    "bad_endings": ("incomplete endings", "{:.1%}"),
}


def label(name: str) -> str:
    """For example "METEOR 1.5 (exact+stem)" for `meteor_exact_stem`."""
    if name in _LABELS:
        return _LABELS[name]
    _, *matchers = name.split("_")
    return f"METEOR 1.5 ({'+'.join(matchers)})" if matchers else "METEOR 1.5"


def statistics(scores: Scores) -> dict[str, str]:
    """By label: the diversity of captions, and how often they confuse genders that references settle."""
    found = {
        label: form.format(getattr(scores.diversity, name)) for name, (label, form) in _DIVERSITY.items()
    }
    gender = scores.gender
    if gender.women:
        found[f"women called men ({counted(gender.women, 'image')})"] = (
            f"{gender.women_as_men} of {gender.women_named}"
        )
    if gender.men:
        found[f"men called women ({counted(gender.men, 'image')})"] = (
            f"{gender.men_as_women} of {gender.men_named}"
        )
    return found


def interval(bounds: tuple[float, float], form: str = ".2f") -> str:
    """Both bounds, times 100."""
    return " to ".join(format(100 * bound, form) for bound in bounds)


def markdown_table(columns: Mapping[str, Scores | NamingScores]) -> str:
    """A column for each data set, with 95% confidence intervals where scores have them."""
    cells = {name: _cells(scores) for name, scores in columns.items()}
    rows = dict.fromkeys(row for column in cells.values() for row in column)
    return markdown(
        ["", *cells], ([row, *(column.get(row, "") for column in cells.values())] for row in rows)
    )


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; `head` names the columns."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))


def _cells(scores: Scores | NamingScores) -> dict[str, str]:
    if isinstance(scores, NamingScores):
        shares = {
            label(name): f"{value:.1f}%" for name, value in scores.to_dict().items() if name != "images"
        }
        return {"images": f"{scores.photos:,}", **shares}
    return {
        "images": f"{scores.images:,}",
        **{
            label(name): f"{100 * value:.1f} ({interval(scores.intervals[name], '.1f')})"
            for name, value in scores.values.items()
        },
        **statistics(scores),
    }
