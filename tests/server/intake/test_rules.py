"""The rules that may refuse a call, and what the documentation says about them."""

import re
from pathlib import Path

from captioner_server.intake.door import Door
from captioner_server.intake.images import AdmittedImages
from captioner_server.intake.rules import Rule
from captioner_server.intake.state import ServerState
from captioner_server.intake.ticket import Kind
from captioner_server.options import ServerOptions

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"
NAMES = {Kind.QUERY: "queries", Kind.IMAGE: "images", Kind.WORDS: "words", Kind.BATCH: "batches"}


def test_the_documentation_lists_all_rules_in_their_order() -> None:
    door = Door(ServerState(1.0), ServerOptions(), lambda ticket: None)
    rules: tuple[Rule, ...] = (*door.rules, *AdmittedImages(8, 4, lambda: 0.0).rules)
    rows = re.findall(r"^\| (\d+) \| [^|]* \| (?:`(\w+)`)? ?\| ([\w, ]+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [
        (str(number), rule.flag, ", ".join(NAMES[kind] for kind in Kind if kind in rule.kinds))
        for number, rule in enumerate(rules, 1)
    ]
