"""Places for images: refused, waited for, handed on."""

import asyncio

import pytest

from captioner_server.admission import Admission
from captioner_server.errors import BusyError, RequestError


def make(limit: int) -> Admission:
    return Admission(limit, lambda: 0.5)


def test_a_full_house_refuses_and_says_when_to_come_again() -> None:
    admission = make(2)
    with admission.enter(2), pytest.raises(BusyError) as caught, admission.enter():
        pass
    assert caught.value.retry_after_s == 0.5
    assert admission.inside == 0


def test_more_than_the_house_holds_is_a_mistake_not_a_matter_of_time() -> None:
    with pytest.raises(RequestError), make(2).enter(3):
        pass


def test_waiters_come_in_as_others_leave_in_their_order() -> None:
    async def run() -> None:
        admission, order = make(1), []

        async def visit(number: int) -> None:
            async with admission.wait():
                assert admission.inside == 1
                order.append(number)
                await asyncio.sleep(0.001)

        await asyncio.gather(*map(visit, range(5)))
        assert order == [0, 1, 2, 3, 4]
        assert admission.inside == 0

    asyncio.run(run())


def test_a_waiter_that_gives_up_takes_no_place() -> None:
    async def run() -> None:
        admission = make(1)

        async def visit() -> None:
            async with admission.wait():
                pass

        with admission.enter():
            waiters = [asyncio.create_task(visit()) for _ in range(3)]
            await asyncio.sleep(0)
            waiters[0].cancel()
            await asyncio.sleep(0)
        waiters[1].cancel()  # just when it was given its place
        await asyncio.gather(*waiters, return_exceptions=True)
        assert admission.inside == 0

    asyncio.run(run())
