"""A model that fails: its batch alone, or for good; and memory that does not suffice."""

import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.models import SIZE, FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import decoder_pids, server_process
from support.serving import make_image, serve

from captioner.options import FALLBACK
from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.captioning.compute import compute
from captioner_server.captioning.supervisor import EXIT_STATUS, FAILURES
from captioner_server.errors import BusyError

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def health(channel: grpc.Channel) -> int:
    return (
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S).status
    )


def wait_for_health(channel: grpc.Channel, status: int) -> None:
    wait_until(lambda: health(channel) == status)


def caption(channel: grpc.Channel, seed: int = 1) -> str:
    """A caption, or the code of the error."""
    try:
        request = pb.CaptionRequest(image=make_image(seed))
        return CaptionServiceStub(channel).Caption(request, timeout=PATIENCE_S).caption.text
    except grpc.RpcError as error:
        return error.code().name


def test_a_model_that_fails_every_batch_is_taken_out_of_service_and_back_when_it_recovers() -> None:
    model = FakeModel()
    with serve(model) as server, grpc.insecure_channel(server.address) as channel:
        expected = caption(channel)
        model.breaks_after = 0
        assert [caption(channel) for _ in range(FAILURES)] == ["INTERNAL"] * FAILURES
        wait_for_health(channel, NOT_SERVING)
        assert caption(channel) == "UNAVAILABLE"
        model.breaks_after = None
        wait_for_health(channel, SERVING)
        assert caption(channel) == expected


def test_one_failing_batch_does_not_take_it_out_of_service() -> None:
    model = FakeModel()
    with serve(model) as server, grpc.insecure_channel(server.address) as channel:
        model.breaks_after = 0
        assert caption(channel) == "INTERNAL"
        model.breaks_after = None
        time.sleep(1)
        assert health(channel) == SERVING


def test_a_batch_that_hangs_is_noticed() -> None:
    model = FakeModel()
    with serve(model, stuck_s=0.3) as server, grpc.insecure_channel(server.address) as channel:
        model.hold.clear()
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(caption, channel)
            wait_for_health(channel, NOT_SERVING)
            model.hold.set()
            assert held.result() != "INTERNAL"
            wait_for_health(channel, SERVING)


def test_health_says_that_images_wait_and_none_is_answered() -> None:
    model = FakeModel()
    with (
        serve(model, stalled_s=0.3, http_port=0) as server,
        grpc.insecure_channel(server.address) as channel,
        ThreadPoolExecutor(1) as pool,
    ):

        def ready() -> bool:
            with suppress(HTTPError):
                return bool(urlopen(f"{server.server.http_url}/readyz").status == 200)
            return False

        assert ready()
        model.hold.clear()
        held = pool.submit(caption, channel)
        wait_for_health(channel, NOT_SERVING)
        assert not ready()
        assert server.metric("serving") == 0
        # Calls are accepted: this server may be the only one.
        assert CaptionServiceStub(channel).GetModel(pb.GetModelRequest(), timeout=PATIENCE_S).name
        model.hold.set()
        assert held.result() not in ("INTERNAL", "UNAVAILABLE")
        wait_for_health(channel, SERVING)
        assert ready()
        assert server.metric("serving") == 1


def test_health_lets_callers_try_again_when_nobody_waits_any_more() -> None:
    model = FakeModel()
    with serve(model, stalled_s=0.3) as server, grpc.insecure_channel(server.address) as channel:
        model.hold.clear()
        call = CaptionServiceStub(channel).Caption.future(pb.CaptionRequest(image=make_image(1)))
        wait_for_health(channel, NOT_SERVING)
        call.cancel()
        wait_for_health(channel, SERVING)
        model.hold.set()


def test_health_says_that_no_decoder_can_be_started() -> None:
    """Callers that fail at once would draw all others here: balancers prefer servers with few open calls."""
    with (
        server_process(decode_workers=1, stalled_s=0.3) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        assert caption(channel) not in ("INTERNAL", "RESOURCE_EXHAUSTED")
        pid = server.process.pid
        _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        [decoder] = decoder_pids(pid)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, most))
        os.kill(decoder, signal.SIGKILL)

        def fails() -> bool:
            assert caption(channel) == "RESOURCE_EXHAUSTED"
            return health(channel) == NOT_SERVING

        wait_until(fails)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
        wait_until(lambda: caption(channel) not in ("INTERNAL", "RESOURCE_EXHAUSTED"))
        wait_for_health(channel, SERVING)


def test_a_process_whose_model_does_not_recover_ends() -> None:
    with (
        server_process(max_batch_size=1, breaks_after=2, failing_s=0.5) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        while (outcome := caption(channel)) != "UNAVAILABLE":
            assert outcome != "DEADLINE_EXCEEDED"
        assert server.end() == EXIT_STATUS
        assert "batches in a row" in server.wait_for("ended")["reason"]


def test_batches_that_end_for_good_are_noticed() -> None:
    class Ended(BaseException):
        """Not caught, as no `Exception`."""

    class Breaking(FakeModel):
        ends = False

        def caption_pixels(self, pixels, options=None):
            if self.ends:
                raise Ended
            return super().caption_pixels(pixels, options)

    model = Breaking()
    with serve(model, failing_s=0.1) as server, grpc.insecure_channel(server.address) as channel:
        model.ends = True
        call = CaptionServiceStub(channel).Caption.future(pb.CaptionRequest(image=make_image(1)))
        assert server.call(server.server.failed()) == "batches are no longer processed"
        call.cancel()


@pytest.mark.parametrize("fits", [1, 2, 3])
def test_a_batch_that_is_out_of_memory_is_split_until_it_fits(fits: int) -> None:
    model = FakeModel()
    model.memory_images = fits
    pixels = [np.full((SIZE, SIZE, 3), value, np.uint8) for value in range(7)]
    captions = compute(model, pixels, [FALLBACK] * 7)
    assert [caption.text for caption in captions] == [model.describe(one, FALLBACK).text for one in pixels]


def test_an_image_that_does_not_fit_alone_fails_alone() -> None:
    class Breaking(FakeModel):
        def caption_pixels(self, pixels, options=None):
            if (pixels == 3).all(axis=(1, 2, 3)).any():
                raise MemoryError
            return super().caption_pixels(pixels, options)

    pixels = [np.full((SIZE, SIZE, 3), value, np.uint8) for value in range(7)]
    captions = compute(Breaking(), pixels, [FALLBACK] * 7)
    assert [isinstance(caption, BusyError) for caption in captions] == [n == 3 for n in range(7)]


def test_nobody_reads_the_log_and_nothing_stops() -> None:
    """More calls than a pipe has room for lines."""
    with server_process() as server:
        server.reading.clear()
        with grpc.insecure_channel(server.address) as channel:
            for _ in range(500):
                assert caption(channel) not in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
        server.reading.set()
        server.tell(signal.SIGTERM)
        assert server.end() == 0
