"""Places for images: refused, waited for, handed on."""

import asyncio
from contextlib import ExitStack

import pytest

from captioner_server.admission import Admission
from captioner_server.errors import BusyError, RequestError
from captioner_server.fair_queue import Claim


def make(limit: int) -> Admission:
    """With half a second an image, in batches of 4."""
    return Admission(limit, 4, lambda: 0.5)


def test_a_full_house_refuses_and_says_when_to_come_again() -> None:
    admission = make(2)
    with admission.enter(2), pytest.raises(BusyError) as caught, admission.enter():
        pass
    assert caught.value.retry_after_s == 1.0
    assert admission.inside == 0


def test_who_would_be_answered_too_late_is_refused_at_once() -> None:
    admission = make(100)
    with admission.enter(6):
        with admission.enter(patience_s=7.4):  # 7 and a batch of 4 take 5.5 s, three quarters of 7.3 s
            pass
        too_late = pytest.raises(BusyError, match=r"about 5\.5 s, too close to the limit of 7\.3 s")
        with too_late as caught, admission.enter(patience_s=7.3):
            pass
        assert caught.value.retry_after_s == 3.0
        with pytest.raises(BusyError), admission.enter(2, patience_s=7.4):
            pass
        with admission.enter(2):  # patient without end
            assert admission.inside == 8
    assert admission.inside == 0


def test_a_caller_waits_for_no_more_of_others_work_than_its_own() -> None:
    admission = make(100)
    with ExitStack() as house:
        for number in range(10):
            house.enter_context(admission.enter(caller=f"dear{number}", cost=20.0))
        assert admission.backlog_s == pytest.approx((201 + 4) * 0.5)
        assert admission.expected_s(caller="cheap") == pytest.approx((11 + 4) * 0.5)
        assert admission.expected_s(caller="dear0", cost=20.0) == pytest.approx((40 + 9 * 20 + 4) * 0.5)
    assert admission.backlog_s == 0


def test_what_fits_into_one_batch_comes_in_whatever_the_estimate() -> None:
    admission = make(100)
    with admission.enter(3), admission.enter(patience_s=0.001):
        assert admission.inside == 4
        assert admission.refusal(1, patience_s=0.001)


def test_more_than_the_house_holds_is_a_mistake_not_a_matter_of_time() -> None:
    with pytest.raises(RequestError), make(2).enter(3):
        pass


def test_waiters_come_in_as_others_leave_in_their_order() -> None:
    async def run() -> None:
        admission, order = make(1), []

        async def visit(number: int) -> None:
            async with admission.wait(Claim()):
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
            async with admission.wait(Claim()):
                pass

        async with admission.wait(Claim()):
            waiters = [asyncio.create_task(visit()) for _ in range(3)]
            await asyncio.sleep(0)
            waiters[0].cancel()
            await asyncio.sleep(0)
        waiters[1].cancel()  # just when it was given its place
        await asyncio.gather(*waiters, return_exceptions=True)
        assert admission.inside == 0

    asyncio.run(run())
