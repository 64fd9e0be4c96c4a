"""Processes that decode images: the same pixels, and limits that no image gets around."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support import bombs
from support.patience import PATIENCE_S, wait_until
from support.serving import make_image

from captioner.errors import (
    DecodingInterruptedError,
    ImageError,
    ImageTooLargeError,
    NotAnImageError,
    OptionsError,
)
from captioner.images.formats import ALL_FORMATS, SAFE_FORMATS, parse_formats
from captioner.images.letterbox import Letterbox
from captioner.images.limits import ImageLimits
from captioner.images.preparation import Preparation
from captioner.images.worker_process import PreemptedError, WorkersError
from captioner.images.workers import DecodeWorkers

PHOTOS = sorted((Path(__file__).parents[2] / "examples").glob("*.jpg"))
LIMITS = ImageLimits(max_memory=200 * 2**20, formats=SAFE_FORMATS)
PREPARATION = Preparation(64, limits=LIMITS)
FOREVER = 100_000  # scans that take longer than any test


@pytest.fixture(scope="module")
def workers() -> Iterator[DecodeWorkers]:
    with DecodeWorkers(PREPARATION, 2, max_cpu_s=0.5) as running:
        running.warm_up()
        yield running


def pids(workers: DecodeWorkers) -> list[int]:
    return [worker._process.pid for worker in workers._workers if worker._process is not None]


def test_pixels_are_those_of_this_process(workers: DecodeWorkers) -> None:
    with ThreadPoolExecutor(4) as pool:
        for photo, pixels in zip(PHOTOS, pool.map(workers.load, map(Path.read_bytes, PHOTOS)), strict=True):
            np.testing.assert_array_equal(pixels, PREPARATION.load(photo))


def test_a_limit_of_file_sizes_is_said(workers: DecodeWorkers) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))  # `ulimit -f` bounds files in memory too
    try:
        with pytest.raises(DecodingInterruptedError, match="File too large"):
            workers.load(bytes(2**21))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("image", [make_image(1, (100, 75), format="PNG"), bytes(2**20)])
def test_a_file_does_not_stay_in_memory(workers: DecodeWorkers, image: bytes) -> None:
    with suppress(NotAnImageError):
        workers.load(image + bytes(2**20))
    assert all(os.fstat(worker._memory).st_size < 2**20 for worker in workers._workers if worker._process)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads page faults from /proc")
def test_memory_of_one_photo_is_kept_for_the_next() -> None:
    """Returning it to the system took a quarter of the time of a photo."""
    photo = make_image(1, (1000, 750), format="JPEG")
    with DecodeWorkers(Preparation(224), 1) as workers:

        def page_faults() -> int:
            return int(Path(f"/proc/{pids(workers)[0]}/stat").read_text().rpartition(")")[2].split()[7])

        for _ in range(5):
            workers.load(photo)
        before = page_faults()
        for _ in range(10):
            workers.load(photo)
        assert page_faults() - before < 100


def test_a_letterboxed_photo_too() -> None:
    preparation = Preparation(64, Letterbox(16, (120, 110, 100)))
    with DecodeWorkers(preparation, 1) as workers:
        image = make_image(1, (90, 40))
        np.testing.assert_array_equal(workers.load(image), preparation.load(image))


@pytest.mark.parametrize(
    "image",
    [b"", b"nothing", make_image(1)[:200], make_image(1, format="JPEG2000"), bombs.large("PNG", 9000)],
)
def test_errors_are_those_of_this_process(workers: DecodeWorkers, image: bytes) -> None:
    with pytest.raises(ImageError) as expected:
        PREPARATION.load(image)
    with pytest.raises(type(expected.value)) as caught:
        workers.load(image)
    assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize(
    "image",
    [
        bombs.scan_bomb(),
        bombs.strip_bomb(),
        b"P5 4000 4000 100\n" + bytes(16_000_000),  # another maxval than 255 is converted in Python
    ],
    ids=["empty scans", "strips", "maxval"],
)
def test_an_image_that_takes_long_is_given_up_and_the_next_is_decoded(
    workers: DecodeWorkers, image: bytes
) -> None:
    with pytest.raises(ImageTooLargeError, match="max_decode_s"):
        workers.load(image)
    for _ in range(4):
        assert workers.load(make_image(1)).shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("bomb", "format"),
    [
        (bombs.profile_bomb, "PNG"),
        (bombs.exif_bomb, "JPEG"),
        (bombs.text_bomb, "PNG"),
        (bombs.heic_bomb, "HEIC"),
    ],
)
def test_metadata_cannot_take_a_decoder(bomb: Callable[[], bytes], format: str) -> None:
    if format == "HEIC":
        pytest.importorskip("pillow_heif")
    preparation = Preparation(64, limits=ImageLimits(max_memory=200 * 2**20, formats=ALL_FORMATS))
    with DecodeWorkers(preparation, 1, max_cpu_s=2.0) as workers:
        with suppress(ImageError):  # an error or an image, both at once
            assert workers.load(bomb()).shape == (64, 64, 3)
        assert workers.load(make_image(1)).shape == (64, 64, 3)


def busy(workers: DecodeWorkers) -> bool:
    return any(worker.busy_since is not None for worker in workers._workers)


def test_others_go_on_beside_an_image_that_takes_long() -> None:
    with ThreadPoolExecutor(1) as pool, DecodeWorkers(PREPARATION, 2, max_cpu_s=PATIENCE_S) as workers:
        bomb = pool.submit(workers.load, bombs.scan_bomb(FOREVER))
        wait_until(lambda: busy(workers))
        for seed in range(20):
            assert workers.load(make_image(seed)).shape == (64, 64, 3)
        assert not bomb.done()


def test_a_slow_image_can_be_preempted_and_decoded_later() -> None:
    with DecodeWorkers(PREPARATION, 1, max_cpu_s=PATIENCE_S, niceness=5) as workers:
        for _ in range(2):
            with pytest.raises(PreemptedError):
                workers.load(bombs.scan_bomb(FOREVER), lambda used_s: used_s >= 0.1)
        assert workers.load(make_image(1), lambda used_s: used_s >= 0.1).shape == (64, 64, 3)
        assert os.getpriority(os.PRIO_PROCESS, pids(workers)[0]) == 5 + os.getpriority(os.PRIO_PROCESS, 0)
        assert workers.restarts == 0
    with DecodeWorkers(PREPARATION, 1, max_cpu_s=0.3) as workers:
        with pytest.raises(ImageTooLargeError, match="max_decode_s"):
            workers.load(bombs.scan_bomb(FOREVER), lambda used_s: False)
        assert workers.restarts == 1


def test_memory_is_limited_by_format_and_really() -> None:
    webp, png = bombs.large("WEBP", 3000), bombs.large("PNG", 3000)
    limits = ImageLimits(max_memory=100 * 2**20)
    with DecodeWorkers(Preparation(64, limits=limits), 1) as workers:
        assert workers.load(png).shape == (64, 64, 3)
        with pytest.raises(ImageTooLargeError, match="max_memory"):
            workers.load(webp)
    # What the estimate lets through, the system's own limit does not.
    workers = DecodeWorkers(Preparation(64), 1)
    workers._workers[0]._settings["max_memory"] = 1
    with workers, pytest.raises(ImageTooLargeError, match="more memory"):
        workers.load(bombs.large("PNG", 9000))


def test_a_process_that_is_killed_loses_no_image(workers: DecodeWorkers) -> None:
    expected = PREPARATION.load(PHOTOS[0])
    for turn in range(6):
        workers.warm_up()
        for pid in pids(workers)[: 1 + turn % 2]:
            os.kill(pid, signal.SIGKILL)
        for _ in range(3):
            np.testing.assert_array_equal(workers.load(PHOTOS[0].read_bytes()), expected)


def test_an_image_whose_processes_are_killed_may_succeed_later() -> None:
    with DecodeWorkers(PREPARATION, 1, max_cpu_s=PATIENCE_S) as workers, ThreadPoolExecutor(1) as pool:
        running = pool.submit(workers.load, bombs.scan_bomb(FOREVER))
        while not running.done():  # as the system does when memory is short
            for pid in pids(workers) if busy(workers) else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        with pytest.raises(DecodingInterruptedError):
            running.result()
        assert workers.load(make_image(1)).shape == (64, 64, 3)


def test_a_process_that_does_not_run_is_not_the_fault_of_its_image() -> None:
    with DecodeWorkers(PREPARATION, 1) as workers:
        workers.warm_up()
        workers._workers[0]._wall_s = 0.3
        for preempt in (None, lambda used_s: False):
            os.kill(pids(workers)[0], signal.SIGSTOP)
            with pytest.raises(DecodingInterruptedError, match="too little processor time"):
                workers.load(make_image(1), preempt)
            workers._workers[0]._wall_s = PATIENCE_S
            assert workers.load(make_image(1)).shape == (64, 64, 3)
            workers._workers[0]._wall_s = 0.3


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_decoders_do_not_see_the_secrets_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    with DecodeWorkers(PREPARATION, 1) as workers:
        workers.warm_up()
        [pid] = pids(workers)
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"PATH=" in environment and b"hunter2" not in environment
        assert workers.load(make_image(1)).shape == (64, 64, 3)


def test_a_crash_is_the_fault_of_the_image() -> None:
    with DecodeWorkers(PREPARATION, 1, max_cpu_s=PATIENCE_S) as workers, ThreadPoolExecutor(1) as pool:
        workers.warm_up()
        running = pool.submit(workers.load, bombs.scan_bomb(FOREVER))
        wait_until(lambda: busy(workers))
        os.kill(pids(workers)[0], signal.SIGSEGV)
        assert isinstance(running.exception(PATIENCE_S), NotAnImageError)
        assert workers.load(make_image(1)).shape == (64, 64, 3)


def test_the_wait_for_a_process_is_foreseen() -> None:
    with DecodeWorkers(PREPARATION, 1, max_cpu_s=PATIENCE_S) as workers, ThreadPoolExecutor(1) as pool:
        workers.load(make_image(1))
        assert workers.expected_wait_s() == 0
        bomb = pool.submit(workers.load, bombs.scan_bomb(FOREVER))
        since = wait_until(lambda: workers._workers[0].busy_since)
        wait_until(lambda: workers.expected_wait_s() > 0.2)
        workers._workers[0].busy_since = since - 0.5 * PATIENCE_S
        assert 0.5 * PATIENCE_S < workers.expected_wait_s() <= PATIENCE_S
        workers._workers[0].busy_since = since - 2 * PATIENCE_S
        assert workers.expected_wait_s() == PATIENCE_S
        os.kill(pids(workers)[0], signal.SIGSEGV)
        assert bomb.exception(PATIENCE_S)
        assert workers.expected_wait_s() == 0


def test_processes_that_do_not_start_are_not_the_fault_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    with DecodeWorkers(PREPARATION, 1) as workers:
        workers._workers[0].start()
        os.kill(pids(workers)[0], signal.SIGKILL)
        with pytest.raises(WorkersError, match="was killed while it started"):
            workers.warm_up()
        monkeypatch.setattr("captioner.images.worker_process._START_S", 0.001)
        with pytest.raises(WorkersError, match="has not started within"):
            workers.warm_up()
        with pytest.raises(WorkersError, match="has not started within"):
            workers.load(make_image(1))
        monkeypatch.undo()
        assert workers.load(make_image(1)).shape == (64, 64, 3)


def test_closing_ends_the_processes_and_what_they_do() -> None:
    workers = DecodeWorkers(PREPARATION, 2, max_cpu_s=PATIENCE_S)
    workers.warm_up()
    running = pids(workers)
    with ThreadPoolExecutor(1) as pool:
        bomb = pool.submit(workers.load, bombs.scan_bomb(FOREVER))
        wait_until(lambda: busy(workers))
        workers.close()
        assert isinstance(bomb.exception(PATIENCE_S), WorkersError)
    for pid in running:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(WorkersError):
        workers.load(make_image(1))


def test_formats_are_named_in_any_case() -> None:
    assert parse_formats("jpeg, png,jpeg2000") == ("JPEG", "PNG", "JPEG 2000")
    assert parse_formats("all") == ALL_FORMATS
    assert parse_formats(",".join(SAFE_FORMATS)) == SAFE_FORMATS
    with pytest.raises(OptionsError, match="'exe'"):
        parse_formats("jpeg,exe")


def test_a_system_without_their_signals_is_told_in_a_line(tmp_path: Path) -> None:
    """As Windows is."""
    without = "import signal; del signal.SIGBUS, signal.SIGTRAP, signal.setitimer"
    code = f"{without}; import sys; from captioner.cli.main import main; sys.exit(main(sys.argv[1:]))"
    photo = Path(__file__).parents[2] / "examples" / "cat.jpg"
    command = [sys.executable, "-c", code, "batch", str(photo), "-o", str(tmp_path / "captions.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2 and "does not support" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
