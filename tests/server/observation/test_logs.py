"""Log lines for people: one line per record, whatever the values hold."""

import logging
import os
from pathlib import Path

import pytest

from captioner_server.observation.log_writer import LogWriter
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_the_log_says_how_many_lines_a_full_disk_has_cost(tmp_path: Path) -> None:
    line = logging.makeLogRecord({"msg": "call", "levelname": "INFO"})
    with Path("/dev/full").open("w") as disk, (tmp_path / "log").open("w") as log:
        writer = LogWriter(disk.fileno())
        writer.setFormatter(_TextFormatter())
        for _ in range(5):
            writer.emit(line)
        writer.drain(20)
        os.dup2(log.fileno(), disk.fileno())
        writer.emit(line)
        writer.drain(20)
    assert writer.dropped == 5
    dropped, after = (tmp_path / "log").read_text().splitlines()
    assert dropped.endswith("warning log lines dropped lines=5")
    assert after.endswith("info call")
