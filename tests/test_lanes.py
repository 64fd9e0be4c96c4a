"""Batches that are captioned at the same time, each by its share of the threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from support.models import SIZE, FakeModel

from captioner.captioner import Captioner
from captioner.errors import OptionsError
from captioner.model.runtime import default_lanes
from captioner.options import FALLBACK, CaptionOptions
from captioner.pipeline import run_pipeline
from captioner.results import Caption
from captioner_server.captioning.batcher import Batcher
from captioner_server.intake.ticket import Ticket
from captioner_server.observation.metrics import Metrics

_WAIT_S = 60


@pytest.fixture
def intra_op_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Threads of each session that is made; 0 is one per core."""
    sessions, found = onnxruntime.InferenceSession, []

    def make(graph: Any, options: Any, **named: Any) -> Any:
        found.append(options.intra_op_num_threads)
        return sessions(graph, options, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", make)
    return found


def test_lanes_share_the_threads(tiny_bundle: Path, intra_op_threads: list[int]) -> None:
    one = Captioner.load(tiny_bundle, device="cpu", threads=4)
    two = Captioner.load(tiny_bundle, device="cpu", threads=4, lanes=2)
    many = Captioner.load(tiny_bundle, device="cpu", threads=2, lanes=None)
    assert [captioner.lanes for captioner in (one, two, many)] == [1, 2, 2]
    assert intra_op_threads == [4, 4, 2, 2, 1, 1]
    assert [default_lanes(cores) for cores in (1, 2, 4, 64)] == [1, 2, 4, 4]
    for lanes in (0, 100_000):
        with pytest.raises(OptionsError, match="lanes must be from 1 to"):
            Captioner.load(tiny_bundle, device="cpu", lanes=lanes)


def test_captions_are_in_order_and_those_of_one_lane(tiny_bundle: Path) -> None:
    photos = list(np.random.default_rng(0).integers(0, 256, (9, 64, 64, 3), dtype=np.uint8))
    one, three = (
        Captioner.load(tiny_bundle, device="cpu", threads=3, lanes=lanes).caption(photos, batch_size=2)
        for lanes in (1, 3)
    )
    assert [caption.text for caption in one] == [caption.text for caption in three]


@pytest.mark.parametrize("lanes", [1, 3])
def test_as_many_batches_are_processed_at_once_as_there_are_lanes(lanes: int) -> None:
    together = threading.Barrier(lanes)
    inside, most = [0], [0]
    lock = threading.Lock()

    def process(batch: list[int]) -> list[int]:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        together.wait(_WAIT_S)  # nobody goes on before all lanes are busy
        with lock:
            inside[0] -= 1
        return batch

    batches = [[partial(int, number)] for number in range(3 * lanes)]
    assert list(run_pipeline(batches, process, lanes=lanes)) == [[number] for number in range(3 * lanes)]
    assert most == [lanes]


class TwoLanes(FakeModel):
    """Answers a batch when another one is computed too."""

    lanes = 2

    def __init__(self) -> None:
        super().__init__()
        self.together = threading.Barrier(2)

    def caption_pixels(
        self, pixels: np.ndarray, options: CaptionOptions | Sequence[CaptionOptions] | None = None
    ) -> list[Caption]:
        self.together.wait(_WAIT_S)
        return super().caption_pixels(pixels, options)


def test_a_server_computes_a_batch_on_each_lane() -> None:
    async def run() -> None:
        model = TwoLanes()
        batcher = Batcher(model, (1,), _WAIT_S, Metrics())
        worker = asyncio.create_task(batcher.run())
        pixels = np.zeros((SIZE, SIZE, 3), dtype=np.uint8)
        first = asyncio.create_task(batcher.submit(pixels, FALLBACK, Ticket()))
        while not model.together.n_waiting:
            await asyncio.sleep(0.001)
        since = batcher.busy_since
        assert since is not None and since <= time.monotonic()
        await asyncio.gather(first, batcher.submit(pixels, FALLBACK, Ticket()))
        assert batcher.busy_since is None
        worker.cancel()
        batcher.close()

    asyncio.run(asyncio.wait_for(run(), 2 * _WAIT_S))
