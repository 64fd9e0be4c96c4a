"""A real model behind the service: captions and maps as from a local one, whatever they were batched with."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from support.patience import PATIENCE_S
from support.processes import ServerProcess, child_environment
from support.serving import RunningServer, make_image, serve

from captioner.captioner import Captioner
from captioner.options import CaptionOptions
from captioner.results import Caption
from captioner_client import CaptionClient

TOLERANCE = 1e-4
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?|\b0\b")
PHOTOS = [
    str(path)
    for path in sorted((Path(__file__).parents[2] / "data").iterdir())
    if path.suffix in {".jpg", ".png", ".webp"}
]
OPTIONS = [
    None,
    CaptionOptions(beam_size=1),
    CaptionOptions(beam_size=4, alternatives=3, attention=False),
    CaptionOptions(beam_size=4, attention_size=(5, 9)),
    CaptionOptions(max_words=5, length_normalization=0.8, no_repeat_ngram=2),
    CaptionOptions(beam_size=2, alternatives=6),
    CaptionOptions(include=("girl",)),
]


@pytest.fixture(scope="module")
def captioner(tiny_bundle: Path) -> Captioner:
    return Captioner.load(tiny_bundle, device="cpu", threads=1)


@pytest.fixture(scope="module")
def server(captioner: Captioner) -> Iterator[RunningServer]:
    with serve(captioner, http_port=0) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[CaptionClient]:
    with CaptionClient(server.address) as client:
        yield client


def assert_close(caption: Caption, local: Caption) -> None:
    assert caption.text == local.text
    assert caption.model == local.model
    assert caption.log_prob == pytest.approx(local.log_prob, abs=TOLERANCE)
    assert [other.text for other in caption.alternatives] == [other.text for other in local.alternatives]
    for word, same in zip(caption.words, local.words, strict=True):
        assert word.text == same.text
        assert word.log_prob == pytest.approx(same.log_prob, abs=TOLERANCE)
        assert (word.sentinel is None) == (same.sentinel is None)
        if same.attention is None:
            assert word.attention is None
        else:
            np.testing.assert_allclose(word.attention, same.attention, atol=TOLERANCE)


def test_captions_and_maps_are_the_local_ones_whatever_they_were_batched_with(
    captioner: Captioner, server: RunningServer, client: CaptionClient
) -> None:
    images = [*PHOTOS, *(make_image(number, (90, 60)) for number in range(12))]
    asked = list(itertools.product(images, OPTIONS))
    with ThreadPoolExecutor(32) as pool:
        captions = list(pool.map(lambda pair: client.caption(*pair), asked))
    for caption, (image, options) in zip(captions, asked, strict=True):
        [local] = captioner.caption([image], options)
        assert_close(caption, local)
    assert server.metric("batch_size_images_sum") > server.metric("batch_size_images_count")


def test_streams_and_batches_give_the_local_captions_too(captioner: Captioner, client: CaptionClient) -> None:
    greedy = CaptionOptions(beam_size=1)
    for photo in PHOTOS:
        *words, caption = client.stream(photo)
        [local] = captioner.caption([photo], greedy)
        assert_close(caption, local)
        assert [word.text for word in words] == [word.text for word in local.words]
    for caption, local in zip(client.caption(PHOTOS), captioner.caption(PHOTOS), strict=True):
        assert_close(caption, local)


def test_captions_over_http_hold_the_words_to_include(captioner: Captioner, server: RunningServer) -> None:
    """A stream has the words of greedy search, which holds none of them, and last the searched caption."""
    [local] = captioner.caption([PHOTOS[0]], CaptionOptions(include=("girl", "dog")))
    image = Path(PHOTOS[0]).read_bytes()
    kind = {"content-type": "application/octet-stream"}
    with httpx.Client(base_url=server.server.http_url, headers=kind, timeout=PATIENCE_S) as http:
        whole = http.post("/v1/caption?include=girl+dog", content=image).json()
        *_, last, _ = http.post("/v1/caption:stream?include=girl+dog", content=image).text.split("\n\n")
        unknown = [
            http.post(f"/v1/caption{how}?include=xyzzy", content=image).json() for how in ("", ":stream")
        ]
    assert {"girl", "dog"} <= set(local.text.split())
    assert whole["caption"] == local.text
    assert last.startswith("event: caption") and json.loads(last.partition("data: ")[2]) == whole
    for answer in unknown:
        assert (answer["error"]["code"], answer["error"]["field"]) == ("INVALID_OPTIONS", "options.include")


def test_photos_of_all_shapes_share_batches(letterboxed_captioner: Captioner) -> None:
    """With a model that letterboxes, every map has the shape of its photo, whatever it was batched with."""
    shapes = {(300, 75): (1, 4), (60, 240): (4, 1), (90, 60): (3, 4), (64, 64): (4, 4)}
    images = [make_image(number, size) for number, size in enumerate([*shapes] * 8)]
    options = [None, CaptionOptions(beam_size=4, attention_size=(5, 9)), CaptionOptions(attention=False)]
    asked = list(itertools.product(images, options))
    with serve(letterboxed_captioner) as server, CaptionClient(server.address) as client:
        model = client.get_model()
        assert model.grid_varies and model.grid == (4, 4)
        with ThreadPoolExecutor(32) as pool:
            captions = list(pool.map(lambda pair: client.caption(*pair), asked))
        *words, streamed = client.stream(images[0])
        assert server.metric("batch_size_images_sum") > server.metric("batch_size_images_count")
    for caption, (image, one) in zip(captions, asked, strict=True):
        assert_close(caption, letterboxed_captioner.caption([image], one)[0])
    found = [caption.words[0].attention.shape for caption in captions[::3]]
    assert found == [*shapes.values()] * 8
    assert_close(streamed, letterboxed_captioner.caption([images[0]], CaptionOptions(beam_size=1))[0])
    assert all(word.attention.shape == (1, 4) for word in words)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "captioner", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=child_environment())


def test_the_commands_print_the_same_with_a_server_as_without(
    tiny_bundle: Path, server: RunningServer
) -> None:
    images = [*PHOTOS, "no/such/file.jpg", __file__]
    for flags in (["--json"], ["--beam", "2"]):
        local = run_command("caption", *images, *flags, "--model", str(tiny_bundle), "--device", "cpu")
        remote = run_command("caption", *images, *flags, "--server", server.address)
        # Words and form are the same; a number may differ in its last digits, as it may with the batch.
        assert NUMBER.sub("#", remote.stdout) == NUMBER.sub("#", local.stdout)
        numbers, same = (list(map(float, NUMBER.findall(done.stdout))) for done in (remote, local))
        assert numbers == pytest.approx(same, abs=TOLERANCE)
        assert remote.stderr == local.stderr
        assert remote.returncode == local.returncode == 1


def test_captioner_serve_serves_until_told(tiny_bundle: Path) -> None:
    command = [sys.executable, "-m", "captioner", "serve", "--model", str(tiny_bundle), "--port", "0"]
    server = ServerProcess([*command, "--device", "cpu", "--threads", "1", "--log-format", "json"])
    try:
        address = server.wait_for("listening")["address"]
        serving = server.wait_for("serving")
        assert (serving["device"], serving["provider"]) == ("cpu", "CPUExecutionProvider")
        with CaptionClient(address) as client:
            assert client.get_model().model == serving["model"]
            assert client.caption(PHOTOS[0]).text
        server.tell()
        assert server.end() == 0
    finally:
        server.process.kill()


def test_captioner_serve_says_in_one_line_why_it_does_not_start(tiny_bundle: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    wrong = [
        ["--model", str(tmp_path)],
        ["--model", str(tiny_bundle), "--max-batch-size", "0"],
        ["--model", str(tiny_bundle), "--token-file", str(tmp_path / "none")],
    ]
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        wrong.append(["--model", str(tiny_bundle), "--device", "cuda"])
    for flags in wrong:
        done = run_command("serve", "--port", "0", *flags)
        assert done.returncode == 2, flags
        assert done.stderr.splitlines()[-1].startswith("captioner: "), done.stderr
        assert "Traceback" not in done.stderr
