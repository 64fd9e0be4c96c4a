"""Threads in turn, also where the system allows no further one."""

import asyncio
import threading
from functools import partial
from weakref import ref

import pytest

from captioner_server.errors import BusyError
from captioner_server.intake.ticket import Ticket
from captioner_server.intake.turns import TurnPool


def test_no_turn_is_lost_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> None:
        pool = TurnPool(1, "test")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            image = {1}
            with pytest.raises(BusyError):
                await pool.run(Ticket(), partial(len, image), 1.0)
            kept = ref(image)
            del image
            assert kept() is None
        assert pool.turns.free == 1
        assert await pool.run(Ticket(), lambda: 2, 1.0) == 2
        pool.close()

    asyncio.run(asyncio.wait_for(run(), 20))
