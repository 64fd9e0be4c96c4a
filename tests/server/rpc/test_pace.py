"""Large messages are unpacked one at a time, and other calls go on in between."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from support.patience import PATIENCE_S

from captioner_server.rpc import pace
from captioner_server.rpc.pace import Pace

UNPACKING_S = 0.01


class Arrivals:
    """Messages that arrive together, and take a while to unpack."""

    def __init__(self) -> None:
        self.arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unpacked: list[int] = []

    async def read(self, number: int) -> int:
        await self.arrived
        time.sleep(UNPACKING_S)
        self.unpacked.append(number)
        return number


def paced(test: Callable[[Pace, Arrivals], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(test(Pace(), Arrivals()), PATIENCE_S)

    asyncio.run(run())


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_PROMPT_S", 0.0)


@pytest.mark.usefixtures("all_large")
def test_other_calls_go_on_between_two_large_messages() -> None:
    async def test(pace: Pace, arrivals: Arrivals) -> None:
        reads = [asyncio.create_task(pace.run(arrivals.read(number))) for number in range(4)]
        await asyncio.sleep(0)
        arrivals.arrived.set_result(None)
        seen = set()
        while not all(read.done() for read in reads):
            await asyncio.sleep(0)
            seen.add(len(arrivals.unpacked))
        assert seen >= {1, 2, 3}
        assert sorted(await asyncio.gather(*reads)) == [0, 1, 2, 3]

    paced(test)


def test_prompt_messages_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_PROMPT_S", PATIENCE_S)
    monkeypatch.setattr(pace, "_PAUSE", 1e9)

    async def test(pace: Pace, arrivals: Arrivals) -> None:
        arrivals.arrived.set_result(None)
        assert [await pace.run(arrivals.read(number)) for number in range(3)] == [0, 1, 2]

    paced(test)


@pytest.mark.usefixtures("all_large")
def test_a_message_that_is_cancelled_while_it_waits_is_unpacked_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise gRPC would never free its bytes."""
    monkeypatch.setattr(pace, "_PAUSE", 1e9)

    async def test(pace: Pace, arrivals: Arrivals) -> None:
        reads = [asyncio.create_task(pace.run(arrivals.read(number))) for number in range(2)]
        await asyncio.sleep(0)
        arrivals.arrived.set_result(None)
        assert await reads[0] == 0
        assert not reads[1].done()
        reads[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await reads[1]
        assert arrivals.unpacked == [0, 1]

    paced(test)


def test_a_read_that_is_cancelled_or_fails_ends_as_without_pace() -> None:
    async def test(pace: Pace, arrivals: Arrivals) -> None:
        read = asyncio.create_task(pace.run(arrivals.read(1)))
        await asyncio.sleep(0)
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read
        assert not arrivals.unpacked

        async def fail() -> None:
            await asyncio.sleep(0)
            raise ValueError

        with pytest.raises(ValueError):
            await pace.run(fail())

    paced(test)
