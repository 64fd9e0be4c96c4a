"""A server that crashes writes nothing of its memory to disk."""

import resource
import sys

from support.processes import FAKE_SERVER, ServerProcess


def test_a_server_leaves_no_core_dump() -> None:
    limited = ["bash", "-c", 'ulimit -c 1000; exec "$@"', "-"]
    running = ServerProcess([*limited, sys.executable, str(FAKE_SERVER), "0"])
    try:
        running.wait_for("serving")
        soft, hard = resource.prlimit(running.process.pid, resource.RLIMIT_CORE)
        assert soft == 0 < hard
    finally:
        running.process.kill()
        running.process.wait()
