import asyncio
from typing import Any

import grpc
import pytest

from captioner_server.rpc.wire import read, read_one


class CancelledWithinItsMessage:
    """The context of a call: gRPC reports the end of its messages first, and then that it is cancelled."""

    async def read(self) -> Any:
        task = asyncio.current_task()
        assert task
        asyncio.get_running_loop().call_later(0.02, task.cancel)
        return grpc.aio.EOF  # type: ignore[attr-defined]


def test_a_call_that_is_cancelled_within_its_message_is_no_malformed_request() -> None:
    context: Any = CancelledWithinItsMessage()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(read_one(context))


class OverBeforeItsMessage:
    """The context of a call that gRPC has ended: reading raises an error of gRPC's own."""

    async def read(self) -> Any:
        raise RuntimeError("ExecuteBatchError")


def test_a_call_that_is_over_is_no_defect() -> None:
    context: Any = OverBeforeItsMessage()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(read(context))
