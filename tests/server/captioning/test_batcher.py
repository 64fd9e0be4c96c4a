"""The batcher against a model that is exactly as slow as a test wants."""

import asyncio
import dataclasses
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from support.models import SIZE, FakeModel

from captioner.options import FALLBACK, CaptionOptions
from captioner.results import Caption
from captioner_server.captioning.batcher import Batcher
from captioner_server.captioning.compute import Computed
from captioner_server.errors import BusyError, DeadlineError
from captioner_server.intake.ticket import Kind, Ticket
from captioner_server.observation.metrics import Metrics

NEVER = math.inf


def pixels(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)


def asked(**changes: object) -> CaptionOptions:
    return dataclasses.replace(FALLBACK, **changes)  # resolved


@asynccontextmanager
async def batching(model: FakeModel, max_wait_s: float = 60, **more: object) -> AsyncIterator[Batcher]:
    batcher = Batcher(model, (1, 2, 4), max_wait_s, Metrics(), **more)
    worker = asyncio.create_task(batcher.run())
    try:
        yield batcher
    finally:
        model.hold.set()
        worker.cancel()
        batcher.close()


async def submit(
    batcher: Batcher, seed: int, options: CaptionOptions = FALLBACK, deadline_s: float = NEVER
) -> Computed:
    return await batcher.submit(pixels(seed), options, Ticket(deadline_s=deadline_s))


async def occupy(batcher: Batcher, model: FakeModel) -> asyncio.Task[Computed]:
    """Keep the model busy with one image until `model.hold` is set."""
    model.hold.clear()
    task = asyncio.create_task(submit(batcher, 0))
    while not model.batches:
        await asyncio.sleep(0.001)
    return task


def test_an_idle_model_is_given_an_image_at_once() -> None:
    async def run() -> None:
        model = FakeModel()
        async with batching(model) as batcher:
            computed = await submit(batcher, 1)
        assert computed.batch_size == 1
        assert computed.caption.text == model.describe(pixels(1), FALLBACK).text

    asyncio.run(run())


def test_what_waits_while_the_model_is_busy_goes_together_in_sizes_that_were_warmed() -> None:
    async def run() -> None:
        model = FakeModel()
        async with batching(model) as batcher:
            first = await occupy(batcher, model)
            others = [asyncio.create_task(submit(batcher, seed)) for seed in range(1, 8)]
            await asyncio.sleep(0)
            model.hold.set()
            answers = await asyncio.gather(first, *others)
        assert [size for size, _ in model.batches] == [1, 4, 2, 1]
        for seed, answer in enumerate(answers):
            assert answer.caption.text == model.describe(pixels(seed), FALLBACK).text

    asyncio.run(run())


def test_callers_share_a_batch_and_each_gets_what_it_asked_for() -> None:
    variants = [
        asked(),
        asked(alternatives=2),
        asked(attention=False),
        asked(attention=False, attention_size=(5, 5)),
        asked(beam_size=1),
        asked(max_words=2),
        asked(attention_size=(4, 4)),
        asked(attention_head=1),
        asked(attention=False, attention_head=1),
        asked(length_normalization=1.3, include=("red",)),
    ]

    async def run() -> None:
        model = FakeModel()
        async with batching(model) as batcher:
            first = await occupy(batcher, model)
            tasks = [asyncio.create_task(submit(batcher, 9, options)) for options in variants]
            await asyncio.sleep(0)
            model.hold.set()
            answers = [answer.caption for answer in await asyncio.gather(*tasks)]
            await first
        assert [size for size, _ in model.batches] == [1, 4, 4, 2]
        for options, caption in zip(variants, answers, strict=True):
            alone = model.describe(pixels(9), options)
            assert caption.text == alone.text
            assert caption.alternatives == alone.alternatives
            for word, same in zip(caption.words, alone.words, strict=True):
                if same.attention is None:
                    assert word.attention is None
                else:
                    np.testing.assert_array_equal(word.attention, same.attention)

    asyncio.run(run())


def test_expensive_searches_hold_nobody_up() -> None:
    """Whoever asks for a little is answered in one of the next two batches, however many ask for much."""

    async def run() -> None:
        model = FakeModel()
        async with batching(model) as batcher:
            first = await occupy(batcher, model)
            dear = [
                asyncio.create_task(
                    batcher.submit(
                        pixels(seed),
                        asked(beam_size=1 + seed % 16, max_words=64, length_normalization=seed / 50),
                        Ticket(f"dear {seed}", cost=17.0),
                    )
                )
                for seed in range(1, 41)
            ]
            await asyncio.sleep(0)
            answered: list[int] = []
            for _ in range(3):
                before = len(model.batches)
                call = batcher.submit(pixels(99), FALLBACK, Ticket("cheap"))
                task = asyncio.create_task(call)
                await asyncio.sleep(0)
                model.hold.set()
                await task
                # Further batches may have begun since: what counts is the one that had the call.
                since = [options for _, options in model.batches[before:]]
                answered.append(1 + next(n for n, options in enumerate(since) if FALLBACK in options))
            await asyncio.gather(first, *dear)
        assert max(answered) <= 2

    asyncio.run(run())


@pytest.mark.parametrize(("calls", "sizes"), [(1, [1, 2, 4, 2, 1]), (2, [1, 4, 4, 2]), (4, [1, 4, 2, 4, 2])])
def test_interactive_calls_do_not_wait_for_a_batch_full_of_bulk(calls: int, sizes: list[int]) -> None:
    """The largest batch is 4. One call shares its batch with one bulk image, two or three fill one with the
    bulk images that are owed a quarter."""

    async def run() -> None:
        model = FakeModel()
        async with batching(model) as batcher:
            first = await occupy(batcher, model)
            bulk = [
                asyncio.create_task(batcher.submit(pixels(seed), FALLBACK, Ticket("bulk", Kind.BATCH)))
                for seed in range(1, 9)
            ]
            single = [asyncio.create_task(submit(batcher, seed)) for seed in range(9, 9 + calls)]
            await asyncio.sleep(0)
            model.hold.set()
            await asyncio.gather(first, *bulk, *single)
        assert [size for size, _ in model.batches] == sizes

    asyncio.run(run())


def test_a_caller_that_has_gone_costs_no_compute() -> None:
    async def run() -> None:
        model = FakeModel()
        async with batching(model) as batcher:
            first = await occupy(batcher, model)
            gone = asyncio.create_task(submit(batcher, 1))
            stays = asyncio.create_task(submit(batcher, 2))
            while batcher.waiting != 2:
                await asyncio.sleep(0)
            gone.cancel()
            while batcher.waiting != 1:
                await asyncio.sleep(0)
            model.hold.set()
            await asyncio.gather(first, stays)
        assert [size for size, _ in model.batches] == [1, 1]

    asyncio.run(run())


class TimedModel(FakeModel):
    """Takes a second for an image, on a clock of its own."""

    now_s = 0.0

    def caption_pixels(self, pixels: np.ndarray, options: CaptionOptions | None = None) -> list[Caption]:
        captions = super().caption_pixels(pixels, options)
        self.now_s += len(pixels)
        return captions

    def clock(self) -> float:
        return self.now_s


def test_under_deadlines_batches_are_as_large_as_these_allow() -> None:
    async def run() -> None:
        model = TimedModel()
        async with batching(model, clock=model.clock) as batcher:
            first = await occupy(batcher, model)  # until 1 s
            passed = [asyncio.create_task(submit(batcher, seed, deadline_s=0.5)) for seed in (1, 2)]
            close = [asyncio.create_task(submit(batcher, seed, deadline_s=1.5)) for seed in (3, 4)]
            soon = [asyncio.create_task(submit(batcher, seed, deadline_s=3.5)) for seed in (5, 6, 7)]
            await asyncio.sleep(0)
            model.hold.set()
            answers = await asyncio.gather(first, *passed, *close, *soon, return_exceptions=True)
        # At 1 s two fit before 3.5 s, not four; at 3 s none does any more, and the last is tried in vain.
        assert [size for size, _ in model.batches] == [1, 2, 1]
        kinds = [type(answer) for answer in answers]
        assert kinds == [Computed, *[DeadlineError] * 4, *[Computed] * 3]

    asyncio.run(run())


def test_an_estimate_that_is_too_long_does_not_starve_an_idle_model() -> None:
    async def run() -> None:
        model = TimedModel()
        async with batching(model, clock=model.clock) as batcher:
            await submit(batcher, 0)  # a second, by the clock
            assert await submit(batcher, 1, deadline_s=model.now_s + 0.1)

    asyncio.run(run())


def test_the_pace_is_that_of_the_latest_batches() -> None:
    batcher = Batcher(FakeModel(), (1, 2, 4), 60, Metrics())
    assert batcher.image_s == 0
    batcher.learn(1, 1.0)
    assert batcher.image_s == 1.0
    for _ in range(20):
        batcher.learn(4, 2.0)
    assert batcher.image_s == pytest.approx(0.5, rel=0.01)
    for _ in range(20):  # a machine that has become five times as slow
        batcher.learn(4, 10.0)
    assert batcher.image_s == pytest.approx(2.5, rel=0.02)
    for _ in range(20):  # searches that cost four times as much
        batcher.learn(4, 40.0, 16)
    assert batcher.image_s == pytest.approx(2.5, rel=0.02)


def test_nobody_waits_longer_than_allowed() -> None:
    async def run() -> None:
        model = FakeModel()
        async with batching(model, max_wait_s=0.05) as batcher:
            first = await occupy(batcher, model)
            with pytest.raises(BusyError, match="max_wait_s"):
                await submit(batcher, 1)
            model.hold.set()  # not before
            await first

    asyncio.run(run())


def test_a_failing_model_fails_its_batch_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        model = FakeModel()
        async with batching(model) as batcher:
            with monkeypatch.context() as patch:
                patch.setattr(model, "describe", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    await submit(batcher, 1)
            assert (await submit(batcher, 2)).batch_size == 1

    asyncio.run(run())
