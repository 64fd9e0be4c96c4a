"""Freed memory is returned to the system, in a process of its own."""

import subprocess
import sys
import textwrap

import pytest
from support.patience import PATIENCE_S


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heaps")
def test_memory_that_was_in_use_when_the_heap_was_trimmed_is_returned_too() -> None:
    """Nothing has grown since then."""
    program = """
        import ctypes, time
        from captioner_server.process import heap

        if not hasattr(ctypes.CDLL(None), "mallopt"):
            raise SystemExit  # another C library
        heap._INTERVAL_S = 0.02
        heap.bound_heap()
        before = heap._resident_bytes()
        blocks = [bytes(2000) for _ in range(50_000)]
        time.sleep(1)  # it is trimmed while they are in use
        last = bytes(2000)  # above them: glibc itself would return no more than what is above this
        del blocks
        limit = time.monotonic() + 60
        while heap._resident_bytes() - before > 2**25:
            assert time.monotonic() < limit, heap._resident_bytes() - before
            time.sleep(0.02)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
