"""Log lines for people: one line per record, whatever the values hold."""

import logging

import pytest

from captioner_server.observation.logs import _TextFormatter


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\x1b[2J", "a\u2028b", "\u202eb", "", "a b", 'a"b', "a=b"])
def test_values_cannot_forge_lines_or_reach_the_terminal(value: str) -> None:
    record = logging.makeLogRecord({"msg": "call", "levelname": "INFO", "fields": {"reason": value}})
    line = _TextFormatter().format(record)
    assert line.isprintable()
    assert line.endswith('"')  # quoted, so that it cannot pass for another field


def test_plain_values_are_as_they_are() -> None:
    record = logging.makeLogRecord({"msg": "call", "levelname": "INFO", "fields": {"name": "été"}})
    assert _TextFormatter().format(record).endswith("info call name=été")
