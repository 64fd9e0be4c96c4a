"""Places for images: refused, waited for, handed on."""

import asyncio
import math
from contextlib import AbstractAsyncContextManager, ExitStack

import grpc
import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import make_image, serve
from support.virtual_time import Clock

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.errors import BusyError, RequestError
from captioner_server.intake.images import AdmittedImages
from captioner_server.intake.ticket import Kind, Ticket


def ask(images: int = 1, patience_s: float = math.inf, caller: str = "", cost: float = 1.0) -> Ticket:
    return Ticket(caller, deadline_s=patience_s, images=images, cost=cost)


def make(limit: int) -> AdmittedImages:
    """With half a second an image, in batches of 4."""
    return AdmittedImages(limit, 4, lambda: 0.5, clock=lambda: 0.0)


def test_a_full_house_refuses_and_says_when_to_come_again() -> None:
    admission = make(2)
    with admission.enter(ask(2)), pytest.raises(BusyError) as caught, admission.enter(ask()):
        pass
    assert caught.value.retry_after_s == 1.0
    assert admission.inside == 0


def test_who_would_be_answered_too_late_is_refused_at_once() -> None:
    admission = make(100)
    with admission.enter(ask(6)):
        with admission.enter(ask(patience_s=7.4)):  # 7 and a batch of 4 take 5.5 s, three quarters of 7.3 s
            pass
        too_late = pytest.raises(BusyError, match=r"about 5\.5 s, too close to the limit of 7\.3 s")
        with too_late as caught, admission.enter(ask(patience_s=7.3)):
            pass
        assert caught.value.retry_after_s == 3.0
        with pytest.raises(BusyError), admission.enter(ask(2, patience_s=7.4)):
            pass
        with admission.enter(ask(2)):  # patient without end
            assert admission.inside == 8
    assert admission.inside == 0


def test_a_caller_waits_for_no_more_of_others_work_than_its_own() -> None:
    admission = make(100)
    with ExitStack() as house:
        for number in range(10):
            house.enter_context(admission.enter(ask(caller=f"dear{number}", cost=20.0)))
        assert admission.backlog_s == pytest.approx((201 + 4) * 0.5)
        assert admission.expected_s(ask(caller="cheap")) == pytest.approx((11 + 4) * 0.5)
        assert admission.expected_s(ask(caller="dear0", cost=20.0)) == pytest.approx((40 + 9 * 20 + 4) * 0.5)
    assert admission.backlog_s == 0


def test_what_fits_into_one_batch_comes_in_whatever_the_estimate() -> None:
    admission = make(100)
    with admission.enter(ask(3)), admission.enter(ask(patience_s=0.001)):
        assert admission.inside == 4
        assert admission.rejection(ask(patience_s=0.001))


def test_more_than_the_house_holds_is_a_mistake_not_a_matter_of_time() -> None:
    with pytest.raises(RequestError), make(2).enter(ask(3)):
        pass


def test_waiters_come_in_as_others_leave_in_their_order() -> None:
    async def run() -> None:
        admission, order = make(1), []

        async def visit(number: int) -> None:
            async with admission.wait(Ticket(kind=Kind.BATCH)):
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
            async with admission.wait(Ticket(kind=Kind.BATCH)):
                pass

        async with admission.wait(Ticket(kind=Kind.BATCH)):
            waiters = [asyncio.create_task(visit()) for _ in range(3)]
            await asyncio.sleep(0)
            waiters[0].cancel()
            await asyncio.sleep(0)
        waiters[1].cancel()  # just when it was given its place
        await asyncio.gather(*waiters, return_exceptions=True)
        assert admission.inside == 0

    asyncio.run(run())


async def wait_for(
    admission: AdmittedImages, caller: str, seconds: float, done: list[str], slow: bool
) -> None:
    ticket = Ticket(caller, Kind.BATCH)
    async with admission.wait(ticket):
        if not slow:
            ticket.decoded()
        await asyncio.sleep(seconds)
        done.append(caller)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """By which places are charged, and images slow that have not been decoded after 20 ms."""
    clock = Clock()
    monkeypatch.setattr("captioner_server.intake.bulk.time", clock)
    monkeypatch.setattr("captioner_server.intake.bulk._SLOW_S", (0.02, 0.02))
    return clock


def test_images_that_take_long_to_decode_do_not_keep_the_places_of_others(clock: Clock) -> None:
    async def run() -> None:
        admission, done = AdmittedImages(64, 4, lambda: 0.001), list[str]()
        slow = [  # twice as many callers as places
            asyncio.create_task(wait_for(admission, f"slow{number % 24}", 60, done, True))
            for number in range(48)
        ]
        await asyncio.sleep(0)
        assert admission.inside == 12
        async with asyncio.timeout(30):
            for _ in range(20):
                await wait_for(admission, "usual", 0, done, False)
        assert done == ["usual"] * 20
        assert not admission.idle
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        assert admission.inside == 0 and admission.idle

    clock.run(run())


def test_a_caller_has_a_bounded_number_of_images_set_aside(clock: Clock) -> None:
    async def run() -> None:
        admission = AdmittedImages(100, 4, lambda: 0.001)
        tasks: list[asyncio.Task[None]] = []

        async def stream() -> None:
            while True:  # as a stream that is not read while its image waits
                place = admission.wait(Ticket("slow", Kind.BATCH))
                await place.__aenter__()
                tasks.append(asyncio.create_task(hold(place)))

        async def hold(place: AbstractAsyncContextManager[None]) -> None:
            await ended.wait()
            await place.__aexit__(None, None, None)

        ended = asyncio.Event()
        reader = asyncio.create_task(stream())
        async with asyncio.timeout(30):
            while admission.aside < 16:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert 16 <= admission.aside == admission.inside < 16 + 12
        reader.cancel()
        assert not admission.idle
        ended.set()
        await asyncio.gather(reader, *tasks, return_exceptions=True)
        assert admission.inside == 0 and admission.idle

    clock.run(run())


def test_no_more_images_are_set_aside_than_the_house_holds(clock: Clock) -> None:
    async def run() -> None:
        admission, done = AdmittedImages(4, 4, lambda: 0.001), list[str]()
        tasks = [
            asyncio.create_task(wait_for(admission, str(number), 60, done, True)) for number in range(20)
        ]
        async with asyncio.timeout(30):
            while admission.inside < 7:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert admission.aside == 4 and admission.inside == 7  # three places
        assert admission.rejection(ask()) is None  # what is aside does not count for interactive calls
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert admission.inside == 0

    clock.run(run())


def test_places_are_charged_by_how_long_they_are_held(clock: Clock) -> None:
    async def run() -> None:
        admission, done = AdmittedImages(4, 4, lambda: 0.0005), list[str]()

        async def visit(caller: str, seconds: float, images: int) -> None:
            # More at a time than there are places, so that the caller always waits for one.
            await asyncio.gather(*[one_after_another(caller, seconds, images) for _ in range(6)])

        async def one_after_another(caller: str, seconds: float, images: int) -> None:
            for _ in range(images):
                await wait_for(admission, caller, seconds, done, False)

        long = [asyncio.create_task(visit(f"long{number}", 0.05, 50)) for number in range(3)]
        await asyncio.sleep(0.2)
        done.clear()
        await visit("short", 0.001, 15)
        assert done.count("short") == 90
        assert len(done) < 90 + 45  # by number of images, there would be three of the others for each
        for task in long:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)

    clock.run(run())


def test_a_newcomer_takes_a_place_of_the_caller_that_has_the_most() -> None:
    """Two callers that always fill the queue would keep all others out."""
    model = FakeModel()
    request = pb.CaptionRequest(image=make_image(1))
    own = [("grpc.use_local_subchannel_pool", 1)]
    with serve(model, queue_size=8, max_batch_size=1) as server, ExitStack() as channels:
        greedy, modest, newcomer = (
            CaptionServiceStub(channels.enter_context(grpc.insecure_channel(server.address, own)))
            for _ in range(3)
        )
        model.hold.clear()
        first = [greedy.Caption.future(request, timeout=PATIENCE_S) for _ in range(6)]
        wait_until(lambda: server.metric("waiting_images") == 5)
        others = [modest.Caption.future(request, timeout=PATIENCE_S) for _ in range(2)]
        wait_until(lambda: server.metric("waiting_images") == 7)
        others.append(newcomer.Caption.future(request, timeout=PATIENCE_S))
        wait_until(lambda: any(call.done() for call in (*first, *others)))
        model.hold.set()
        assert all(call.result().caption.text for call in others)
        [lost] = [call for call in first if call.exception()]
        assert lost.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "fewer images" in lost.details()
