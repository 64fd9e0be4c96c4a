"""Tables of scores."""

from captioner.metrics import evaluate_captions
from captioner.metrics.naming import NamingScores
from captioner.metrics.tables import label, markdown_table


def test_each_data_set_has_a_column() -> None:
    captions = evaluate_captions({"1": "a dog runs"}, {"1": ["a dog runs"]}, meteor=False, samples=10)
    table = markdown_table({"photos": captions, "labels": NamingScores(2000, 0.5, 0.125, 0.25)})
    lines = table.splitlines()
    assert lines[:3] == ["|  | photos | labels |", "| --- | --- | --- |", "| images | 1 | 2,000 |"]
    assert "| BLEU-1 | 100.0 (100.0 to 100.0) |  |" in lines
    assert "| incomplete endings | 0.0% |  |" in lines
    assert "| name what is there |  | 50.0% |" in lines and "| score: the difference |  | 37.5% |" in lines


def test_a_meteor_without_its_data_is_not_called_meteor() -> None:
    assert [label(name) for name in ("meteor", "meteor_exact_stem")] == [
        "METEOR 1.5",
        "METEOR 1.5 (exact+stem)",
    ]
