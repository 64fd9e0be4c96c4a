"""The client against a real server: the results and errors of a local captioner."""

import asyncio
import io
import itertools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence
from support.models import FakeModel
from support.patience import PATIENCE_S
from support.processes import child_environment
from support.serving import RunningServer, make_image, serve

from captioner.errors import (
    ImageError,
    ImageTooLargeError,
    ImageUnreadableError,
    NotAnImageError,
    OptionsError,
)
from captioner.options import CaptionOptions
from captioner.results import Caption, Word
from captioner_client import (
    AsyncCaptionClient,
    CaptionClient,
    ClientOptions,
)
from captioner_client.encoding import encode_image


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve(FakeModel(), max_image_bytes=100_000, max_beam_size=8) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[CaptionClient]:
    with CaptionClient(server.address) as client:
        yield client


def assert_same(caption: Caption, local: Caption) -> None:
    assert (caption.text, caption.log_prob, caption.model) == (local.text, local.log_prob, local.model)
    assert caption.alternatives == local.alternatives
    for word, same in zip(caption.words, local.words, strict=True):
        assert (word.text, word.log_prob, word.sentinel) == (same.text, same.log_prob, same.sentinel)
        if same.attention is None:
            assert word.attention is None
        else:
            assert word.attention.dtype == np.float32
            np.testing.assert_array_equal(word.attention, same.attention)


@pytest.mark.parametrize(
    "options",
    [
        None,
        CaptionOptions(attention=False, max_words=3),
        CaptionOptions(beam_size=4, alternatives=3, attention_size=(7, 5), length_normalization=0.7),
    ],
)
def test_a_caption_is_the_local_one(
    server: RunningServer, client: CaptionClient, options: CaptionOptions | None
) -> None:
    image = make_image(3)
    caption = client.caption(image, options)
    assert_same(caption, server.model.describe(server.model.preprocess(image), options))
    assert caption.source is image


def test_paths_bytes_and_pillow_images_are_the_same(client: CaptionClient, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(make_image(3))
    with Image.open(path) as opened:
        captions = client.caption([path, str(path), path.read_bytes(), opened])
        assert captions[3].source is opened
    assert captions[0].source is path
    for caption in captions[1:]:
        assert_same(caption, captions[0])


def test_words_are_streamed(server: RunningServer, client: CaptionClient) -> None:
    *words, caption = client.stream(make_image(4))
    local = server.model.describe(server.model.preprocess(make_image(4)), CaptionOptions(beam_size=1))
    assert_same(caption, local)
    assert all(isinstance(word, Word) for word in words)
    assert [word.text for word in words] == [word.text for word in local.words]


def test_many_are_answered_in_order_each_failing_on_its_own(
    server: RunningServer, client: CaptionClient, tmp_path: Path
) -> None:
    images = [make_image(number) for number in range(100)]
    images[10], images[20], images[30] = b"no image", str(tmp_path / "none.jpg"), bytes(150_000)
    answers = client.caption(images, return_errors=True)
    kinds = {10: NotAnImageError, 20: ImageUnreadableError, 30: ImageTooLargeError}
    assert {n: type(answer) for n, answer in enumerate(answers) if not isinstance(answer, Caption)} == kinds
    for number in set(range(100)) - set(kinds):
        assert_same(answers[number], server.model.describe(server.model.preprocess(images[number])))
    with pytest.raises(NotAnImageError):
        client.caption(images)


def test_of_many_the_first_that_failed_is_raised(client: CaptionClient, tmp_path: Path) -> None:
    """Also where the client knows of a later one before the server has answered."""
    missing = str(tmp_path / "none.jpg")
    for _ in range(5):
        with pytest.raises(NotAnImageError):
            client.caption([make_image(1), b"no image", missing])
        with pytest.raises(ImageUnreadableError):
            client.caption([make_image(1), missing, b"no image"])


def test_a_batch_is_read_ahead_by_a_window_only(server: RunningServer) -> None:
    read = itertools.count()

    def endless() -> Iterator[bytes]:
        for _ in read:
            yield make_image(1)

    with CaptionClient(server.address, ClientOptions(batch_window=4)) as client:
        outcomes = client.caption_batch(endless())
        seen = [next(outcomes)[0] for _ in range(10)]
        time.sleep(0.2)
        outcomes.close()
    assert len(set(seen)) == 10
    assert next(read) <= 10 + 4 + 2


def test_what_the_images_iterator_raises_is_raised(client: CaptionClient) -> None:
    def images() -> Iterator[bytes]:
        yield make_image(1)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        client.caption(images())


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (b"", NotAnImageError),
        (make_image(1)[:500], NotAnImageError),
        (bytes(150_000), ImageTooLargeError),
        ("/no/such/file.jpg", ImageUnreadableError),
        ("/", ImageUnreadableError),
        (3, NotAnImageError),
    ],
)
def test_image_errors_are_the_library_s_own(client: CaptionClient, image: object, kind: type) -> None:
    with pytest.raises(kind) as caught:
        client.caption(image)
    assert type(caught.value) is kind
    with pytest.raises(kind):
        list(client.stream(image))


def test_options_that_a_server_does_not_allow_name_their_field(client: CaptionClient) -> None:
    with pytest.raises(OptionsError) as caught:
        client.caption(make_image(1), CaptionOptions(beam_size=9))
    assert caught.value.field == "beam_size"


def test_an_error_among_several_images_keeps_the_captions(client: CaptionClient, tmp_path: Path) -> None:
    gone, broken, left_out = tmp_path / "gone.jpg", tmp_path / "broken.jpg", ImageUnreadableError("left out")
    broken.write_bytes(b"no image")
    with pytest.raises(ImageUnreadableError, match=r"gone\.jpg: No such .*3 of 4 images") as caught:
        client.caption([make_image(1), gone, broken, left_out])
    assert (caught.value.image, caught.value.index) == (str(gone), 1)
    caption, *errors = caught.value.outcomes
    assert caption.text == client.caption(make_image(1)).text
    assert [error.image for error in errors] == [str(gone), str(broken), None] and errors[2] is left_out


def test_the_model_is_described(server: RunningServer, client: CaptionClient) -> None:
    model = client.get_model()
    assert model.model == server.model.model
    assert (model.grid, model.device, model.provider) == ((2, 3), "cpu", "FakeProvider")
    assert model.precision == "float32"
    assert model.defaults == server.model.defaults
    assert model.calibration == server.model.calibration
    assert (model.max_image_bytes, model.max_beam_size) == (100_000, 8)


def test_large_photos_are_shrunk_when_asked(server: RunningServer, tmp_path: Path) -> None:
    photo = make_image(1, (900, 600))
    (tmp_path / "photo.png").write_bytes(photo)
    with CaptionClient(server.address, ClientOptions(shrink_to=128)) as client:
        assert client.caption(tmp_path / "photo.png").words[0].attention.shape == server.model.grid
        assert client.caption([photo, Image.new("RGB", (3000, 20))])
    with CaptionClient(server.address) as client, pytest.raises(ImageTooLargeError):
        client.caption(photo)


@pytest.mark.parametrize(("side", "sent"), [(512, 256), (257, 256), (256, 256), (200, 200)])
@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_photos_are_shrunk_to_the_side_that_is_asked(side: int, sent: int, format: str) -> None:
    photo = make_image(1, (side, side), format=format)
    payload = encode_image(photo, ClientOptions(shrink_to=256))
    assert Image.open(io.BytesIO(payload)).size == (sent, sent)
    assert (payload == photo) == (side == sent)


def test_photos_of_phones_are_sent_as_jpeg(server: RunningServer, tmp_path: Path) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    photo = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (64, 48), (0, 128, 128))).save(photo)
    (tmp_path / "photo.heic").write_bytes(photo.getvalue())
    with CaptionClient(server.address) as client:  # whose server does not accept HEIC
        assert client.caption(photo.getvalue()).words
        assert client.caption([tmp_path / "photo.heic"])


def test_what_cannot_be_read_here_is_left_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif.as_plugin", None)
    photo = b"\0\0\0\x18ftypheic" + bytes(100)
    assert encode_image(photo, ClientOptions()) == photo


def test_what_grpc_itself_refuses_is_too_large_too(server: RunningServer) -> None:
    options = ClientOptions(max_image_bytes=2**27, max_attempts=1)
    with CaptionClient(server.address, options) as client, pytest.raises(ImageTooLargeError):
        client.caption(bytes(70_000_000))


def test_a_client_in_place_of_a_local_captioner(server: RunningServer, client: CaptionClient) -> None:
    """The same program, `Captioner` or `CaptionClient`: see `captioner.protocol.ImageCaptioner`."""
    model = server.model
    for name in ("model", "name", "device", "provider", "precision", "grid", "grid_varies", "heads"):
        assert getattr(client, name) == getattr(model, name)
    assert client.calibration == model.calibration
    assert client.digest == model.digest[:12] and client.defaults == model.defaults
    images = [make_image(number) for number in range(12)]
    expected = [model.describe(model.preprocess(image)).text for image in images]
    assert [caption.text for caption in client.caption(iter(images))] == expected
    assert [str(outcome) for outcome in client.caption_each(images)] == expected
    assert len(client.caption(images[0], CaptionOptions(alternatives=2), beam_size=4).alternatives) == 2
    with pytest.raises(OptionsError, match="unknown option 'beam'"):
        client.caption(images[0], beam=3)
    assert isinstance(client.caption(b"no image", return_errors=True), NotAnImageError)
    array = np.full((20, 30, 3), 77, np.uint8)
    [by_file, by_array] = client.caption([io.BytesIO(images[0]), array])
    assert by_file.text == expected[0] and by_file.source == images[0]
    assert by_array == client.caption(Image.fromarray(array)) and by_array.source is array
    frames = [Image.new("RGB", (40, 40), color) for color in ("red", "lime", "blue")]
    frames[0].save(file := io.BytesIO(), "GIF", save_all=True, append_images=frames[1:])
    captions = client.caption(ImageSequence.Iterator(Image.open(file)))
    assert [caption.source.convert("RGB").getpixel((0, 0)) for caption in captions] == [
        frame.getpixel((0, 0)) for frame in frames
    ]
    *_, caption = client.stream(images[0], beam_size=1)
    assert isinstance(caption, Caption) and caption.source == images[0]


def test_the_asynchronous_client_does_the_same(server: RunningServer) -> None:
    async def run() -> None:
        async with AsyncCaptionClient(server.address) as client:
            captions = await asyncio.gather(*(client.caption(make_image(number)) for number in range(20)))
            assert [caption.text for caption in captions] == [
                caption.text for caption in await client.caption(make_image(n) for n in range(20))
            ]
            items = [item async for item in client.stream(make_image(1))]
            assert items[-1].text == " ".join(word.text for word in items[:-1])
            assert (await client.get_model()).name == "fake"
            outcomes = client.caption_batch(itertools.repeat(make_image(1)))
            assert isinstance((await anext(outcomes))[1], Caption)
            await outcomes.aclose()

    asyncio.run(run())


def test_images_may_come_asynchronously(server: RunningServer) -> None:
    async def downloads() -> AsyncIterator[bytes | ImageError]:
        async with asyncio.TaskGroup() as group:  # which belongs to one task
            found = [group.create_task(asyncio.sleep(0, make_image(number))) for number in range(9)]
            for number, task in enumerate(found):
                yield NotAnImageError("no picture") if number == 1 else await task

    async def run() -> None:
        async with AsyncCaptionClient(server.address, ClientOptions(batch_window=4)) as client:
            outcomes = [outcome async for outcome in client.caption_each(downloads(), beam_size=2)]
            assert [type(outcome) for outcome in outcomes] == [Caption, NotAnImageError, *[Caption] * 7]
            assert str(outcomes[8]) == str(await client.caption(make_image(8), beam_size=2))

    asyncio.run(run())


def test_asynchronous_images_are_read_ahead_by_a_window_and_ended(server: RunningServer) -> None:
    read, ended = itertools.count(), []

    async def queued() -> AsyncIterator[bytes]:
        try:
            while next(read) < 20:
                yield make_image(1)
            await asyncio.Event().wait()  # for an image that never comes
        finally:
            ended.append(True)

    async def run() -> None:
        async with AsyncCaptionClient(server.address, ClientOptions(batch_window=4)) as client:
            outcomes = client.caption_batch(queued())
            seen = [(await anext(outcomes))[0] for _ in range(10)]
            await asyncio.sleep(0.2)
            assert next(read) <= 10 + 4 + 2
            seen += [(await anext(outcomes))[0] for _ in range(9)]
            assert sorted(seen) == list(range(19))
            await asyncio.sleep(0.2)
            await outcomes.aclose()
            assert ended

    asyncio.run(run())


@pytest.mark.parametrize("error", [LookupError("mine"), asyncio.CancelledError("mine")])
def test_what_asynchronous_images_raise_is_raised(server: RunningServer, error: BaseException) -> None:
    async def images() -> AsyncIterator[bytes]:
        yield make_image(1)
        raise error

    async def run() -> None:
        async with AsyncCaptionClient(server.address) as client, asyncio.timeout(PATIENCE_S):
            with pytest.raises(type(error), match="mine"):
                [outcome async for outcome in client.caption_each(images())]

    asyncio.run(run())


def test_the_synchronous_client_takes_no_asynchronous_images(client: CaptionClient) -> None:
    async def images() -> AsyncIterator[bytes]:
        yield make_image(1)

    for method in (client.caption_batch, client.caption_each):
        with pytest.raises(TypeError, match="not iterable"):
            list(method(images()))


def test_one_client_serves_many_threads(server: RunningServer, client: CaptionClient) -> None:
    with ThreadPoolExecutor(16) as pool:
        captions = list(pool.map(client.caption, [make_image(number) for number in range(100)]))
    for number, caption in enumerate(captions):
        assert_same(caption, server.model.describe(server.model.preprocess(make_image(number))))


def test_importing_the_client_is_light() -> None:
    code = "import captioner_client, sys; print(*(set(sys.modules) & {'grpc', 'numpy', 'PIL', 'torch'}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment())
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_errors_name_their_files(client: CaptionClient, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    for image in (bad, tmp_path / "gone.jpg"):
        alone, [among] = (client.caption(one, return_errors=True) for one in (image, [image]))
        assert isinstance(among, ImageError)
        with pytest.raises(ImageError) as streamed:
            list(client.stream(image))
        assert str(alone).startswith(f"{image}: ") and str(alone) == str(among)
        assert str(streamed.value).endswith(among.reason)
