"""What a token's own limits allow: over every interface, for one caller and no other."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from google.rpc import error_details_pb2, status_pb2
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer, make_image, serve

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.errors import BusyError, RequestError
from captioner_server.intake.allowance import Allowance, Limits
from captioner_server.intake.images import AdmittedImages
from captioner_server.intake.ticket import Ticket

IMAGE = make_image(1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    (tmp_path / "tokens").write_text("few f calls=2\nsmall s images=2\nslow r rate=0.02\nfree x\n")
    with serve(FakeModel(), token_file=tmp_path / "tokens", decode_workers=1, http_port=0) as running:
        yield running


@pytest.fixture
def stub(server: RunningServer) -> Iterator[CaptionServiceStub]:
    with grpc.insecure_channel(server.address) as channel:
        yield CaptionServiceStub(channel)


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def caption(stub: CaptionServiceStub, token: str) -> grpc.Future:
    return stub.Caption.future(pb.CaptionRequest(image=IMAGE), timeout=PATIENCE_S, metadata=bearer(token))


def refused(call: grpc.Future) -> str:
    """The message of a call that is told to come again later."""
    error = call.exception(PATIENCE_S)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    assert any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)
    return error.details()


def busy(server: RunningServer, images: int) -> None:
    """Wait until so many images are in work."""
    wait_until(lambda: server.server.models.get().admitted >= images)


def test_calls_at_once(server: RunningServer, stub: CaptionServiceStub) -> None:
    server.model.hold.clear()
    first = [caption(stub, "f") for _ in range(2)]
    busy(server, 2)
    assert "2 calls at once" in refused(caption(stub, "f"))
    other = caption(stub, "x")
    busy(server, 3)
    server.model.hold.set()
    assert all(call.result() for call in [*first, other, caption(stub, "x")])
    assert caption(stub, "f").result()


def test_images_in_work(server: RunningServer, stub: CaptionServiceStub) -> None:
    server.model.hold.clear()
    first = [caption(stub, "s") for _ in range(2)]
    busy(server, 2)
    assert "2 images in work" in refused(caption(stub, "s"))
    server.model.hold.set()
    assert all(call.result() for call in first)
    # A stream waits instead.
    requests = [pb.CaptionBatchRequest(id=str(number), image=IMAGE) for number in range(6)]
    answers = stub.CaptionBatch(iter(requests), timeout=PATIENCE_S, metadata=bearer("s"))
    assert {answer.id for answer in answers if answer.caption.text} == {one.id for one in requests}
    assert max(size for size, _ in server.model.batches[-6:]) <= 2


def test_images_a_second(server: RunningServer, stub: CaptionServiceStub) -> None:
    assert caption(stub, "r").result()
    assert "0.02 images a second" in refused(caption(stub, "r"))
    answer = httpx.post(
        f"{server.server.http_url}/v1/caption",
        content=IMAGE,
        headers={"authorization": "Bearer r", "content-type": "image/png"},
        timeout=PATIENCE_S,
    )
    assert answer.status_code == 429 and answer.json()["error"]["code"] == "BUSY"
    assert 1 <= int(answer.headers["retry-after"]) <= 50
    assert caption(stub, "x").result()


def test_the_rate_is_kept_and_what_is_not_used_is_saved_for_a_second_only() -> None:
    now = 100.0
    admitted = AdmittedImages(100, 4, lambda: 0.0)
    allowance = Allowance(Limits(rate=4), lambda: now)
    one = Ticket(allowance=allowance)
    taken = 0
    for _ in range(80):  # 10 s
        while admitted.rejection(one) is None:
            with admitted.enter(one):
                taken += 1
        now += 0.125
    assert taken == 4 + 39  # what is saved, and what 9.875 s bring
    now += 100
    with admitted.enter(Ticket(allowance=allowance, images=10)):  # more than a burst: paid for afterwards
        pass
    with pytest.raises(BusyError) as caught, admitted.enter(one):
        pass
    assert caught.value.retry_after_s == pytest.approx(7 / 4)


def test_more_than_is_ever_allowed_is_a_mistake() -> None:
    admitted, allowance = AdmittedImages(100, 4, lambda: 0.0), Allowance(Limits(images=3))
    one, three, four = (Ticket(allowance=allowance, images=images) for images in (1, 3, 4))
    with pytest.raises(RequestError), admitted.enter(four):
        pass
    with admitted.enter(three), pytest.raises(BusyError), admitted.enter(one):
        pass
    with admitted.enter(three):
        pass


def test_new_limits_hold_for_what_is_open() -> None:
    allowance = Allowance(Limits(images=2))
    with allowance.enter(2):
        allowance.change(Limits(images=1, rate=5))
        assert allowance.free_images == -1
        allowance.change(Limits(images=3))
        assert allowance.free_images == 1
    assert allowance.free_images == 3
