"""A process may have only so much address space. With too little, libraries end it without a word."""

import sys

import pytest
from support.processes import FAKE_SERVER, ServerProcess


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v")
def test_a_low_limit_is_told_before_libraries_take_what_there_is() -> None:
    limited = ["bash", "-c", 'ulimit -v 1000000; exec "$@"', "-"]
    running = ServerProcess([*limited, sys.executable, str(FAKE_SERVER), "0"])
    try:
        told = running.wait_for("the limit of address space is low")
        assert told["limit"] == 1_024_000_000 < told["needed"]
    finally:
        running.process.kill()
        running.process.wait()
