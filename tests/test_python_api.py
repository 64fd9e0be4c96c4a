"""What a Python user expects: any kind of image, one or many, options as keywords, errors in place."""

from __future__ import annotations

import inspect
import io
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

import captioner as package
import captioner_client
from captioner import (
    Caption,
    Captioner,
    CaptionOptions,
    ImageLimits,
    ImageUnreadableError,
    ModelOutputError,
    NotAnImageError,
    OptionsError,
    Word,
)
from captioner.model.runtime import Runtime

EXAMPLES = Path(__file__).parents[1] / "examples"
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))[:4]


@pytest.fixture(scope="module")
def expected(tiny_captioner: Captioner) -> list[str]:
    return [caption.text for caption in tiny_captioner.caption(PHOTOS)]


def test_one_image_gives_one_caption_and_many_a_list(tiny_captioner: Captioner, expected: list[str]) -> None:
    path = PHOTOS[0]
    data = path.read_bytes()
    with Image.open(path) as picture, path.open("rb") as file:
        array = np.asarray(picture.convert("RGB"))
        for image in (path, str(path), data, bytearray(data), file, io.BytesIO(data), picture, array):
            caption = tiny_captioner.caption(image)
            assert isinstance(caption, Caption) and caption.text == expected[0]
    assert [c.text for c in tiny_captioner.caption(photo for photo in PHOTOS)] == expected
    assert [c.text for c in tiny_captioner.caption(tuple(PHOTOS))] == expected
    assert tiny_captioner.caption([]) == []
    batch = np.stack([array, array])
    assert [c.text for c in tiny_captioner.caption(batch)] == [expected[0]] * 2


def test_each_frame_of_an_animation_has_its_own_caption(tiny_captioner: Captioner, tmp_path: Path) -> None:
    """Pillow's iterator gives one object for all frames, which it turns to the next."""
    pictures = [Image.open(path).convert("RGB").resize((96, 96)) for path in PHOTOS]
    pictures[0].save(tmp_path / "all.gif", save_all=True, append_images=pictures[1:])
    with Image.open(tmp_path / "all.gif") as animation:
        frames = ImageSequence.all_frames(animation)
        captions = tiny_captioner.caption(ImageSequence.Iterator(animation))
    assert [c.log_prob for c in captions] == pytest.approx(
        [c.log_prob for c in tiny_captioner.caption(frames)]
    )
    assert len({c.log_prob for c in captions}) == len(PHOTOS)
    assert [np.asarray(c.source).tolist() for c in captions] == [np.asarray(f).tolist() for f in frames]


def test_an_animation_that_cannot_be_read_fails_alone(tiny_captioner: Captioner) -> None:
    file = io.BytesIO()
    first, second = (Image.new("RGB", (40, 40), color) for color in ("red", "blue"))
    first.save(file, "GIF", save_all=True, append_images=[second])
    for length in (len(file.getvalue()) - 20, len(file.getvalue())):
        with Image.open(io.BytesIO(file.getvalue()[:length])) as animation:
            animation.seek(1)
            if length == len(file.getvalue()):
                animation.close()
            good, bad = tiny_captioner.caption([PHOTOS[0], animation], return_errors=True)
        assert isinstance(good, Caption) and isinstance(bad, NotAnImageError)


def test_the_source_of_a_file_object_can_be_read_again(tiny_captioner: Captioner) -> None:
    with PHOTOS[0].open("rb") as file:
        caption = tiny_captioner.caption(file)
    assert caption.source == PHOTOS[0].read_bytes() and caption._repr_html_().count("<img") > 1


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (np.zeros((4, 4), np.uint8), NotAnImageError),
        (np.zeros((4, 4, 4), np.uint8), NotAnImageError),
        (np.zeros((4, 4, 3), np.float32), NotAnImageError),
        (np.zeros((0, 4, 3), np.uint8), NotAnImageError),
        (io.StringIO("text"), NotAnImageError),
        (io.BytesIO(b"no image"), NotAnImageError),
        ("no such file.jpg", ImageUnreadableError),
    ],
)
def test_what_is_no_image_is_one_clear_error(tiny_captioner: Captioner, image: Any, error: Any) -> None:
    with pytest.raises(error) as caught:
        tiny_captioner.caption(image)
    assert "\n" not in str(caught.value)
    assert isinstance(tiny_captioner.caption(image, return_errors=True), error)
    good, bad = tiny_captioner.caption([PHOTOS[0], image], return_errors=True)
    assert isinstance(good, Caption) and isinstance(bad, error)


def test_the_error_of_an_image_names_its_file(tiny_captioner: Captioner, tmp_path: Path) -> None:
    gone, bad, url = "nope.jpg", tmp_path / "bad.jpg", "https://example.org/photo.jpg"
    bad.write_bytes(b"no image")
    for image in (gone, bad, url):
        [error] = tiny_captioner.caption([image], return_errors=True)
        assert str(error).startswith(f"{image}: ") and error.reason == str(error).removeprefix(f"{image}: ")
        one = tiny_captioner.caption(image, return_errors=True)
        assert isinstance(one, package.ImageError) and (str(one), one.image) == (str(error), str(image))
        [alone] = tiny_captioner.caption_each([image])  # whose caller names it
        assert isinstance(alone, package.ImageError)
        assert (str(alone), alone.image) == (error.reason, str(image))
        with pytest.raises(package.ImageError) as raised:
            tiny_captioner.caption(image)
        with pytest.raises(package.ImageError) as streamed:
            list(tiny_captioner.stream(image))
        assert str(raised.value) == str(streamed.value) == str(error)
        with pytest.raises(package.ImageError) as several:
            tiny_captioner.caption([PHOTOS[0], image])
        assert str(several.value).startswith(f"{error} (1 of 2 images failed") and several.value.index == 1
    assert "only the command line fetches it" in str(error) and "give its bytes" in str(error)
    assert "return_errors=True" in str(several.value)
    assert str(tiny_captioner.caption(b"no image", return_errors=True)).startswith("not an image")


def test_a_file_that_is_awaited_is_said_to_be_one(tiny_captioner: Captioner) -> None:
    class Upload:  # as FastAPI's
        async def read(self, size: int = -1) -> bytes:
            return PHOTOS[0].read_bytes()

    with pytest.raises(NotAnImageError, match=r"give what awaiting its read\(\) returns"):
        tiny_captioner.caption(Upload())  # type: ignore[call-overload]


def test_a_column_of_a_table_is_many_images(tiny_captioner: Captioner, expected: list[str]) -> None:
    for paths in (np.array(PHOTOS, dtype=object), np.array([str(path) for path in PHOTOS])):
        assert [c.text for c in tiny_captioner.caption(paths)] == expected
    assert tiny_captioner.caption(np.array([], dtype=object)) == []


def test_results_are_formatted_as_their_text(tiny_captioner: Captioner) -> None:
    caption = tiny_captioner.caption(PHOTOS[0], alternatives=1)
    for one in (caption, caption.words[0], caption.alternatives[0]):
        assert f"{one:>90}" == one.text.rjust(90) and f"{one}" == one.text


def test_a_captioner_says_what_it_is(tiny_captioner: Captioner) -> None:
    precision = tiny_captioner.precision
    assert repr(tiny_captioner) == f"Captioner({tiny_captioner.model}, precision={precision}, device=cpu)"


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_captioner_goes_to_a_process_that_is_spawned(
    tiny_bundle: Path, expected: list[str], lanes: int
) -> None:
    captioner = Captioner.load(
        tiny_bundle, threads=2, lanes=lanes, precision="float32", limits=ImageLimits(max_pixels=10**6)
    )
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(captioner.caption, PHOTOS[0]).result().text == expected[0]
    again = pickle.loads(pickle.dumps(captioner))
    assert (again.info, again.lanes, again.limits) == (captioner.info, lanes, captioner.limits)


class OwnCaptioner(Captioner):
    """One that a user has extended."""


def test_a_pickled_captioner_keeps_its_class(tiny_bundle: Path) -> None:
    captioner = OwnCaptioner.load(tiny_bundle, threads=1)
    assert type(pickle.loads(pickle.dumps(captioner))) is OwnCaptioner


def test_an_unknown_argument_is_one_of_the_function_that_was_called(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^caption_folder\(\) got an unexpected keyword argument 'fmt'$"):
        package.caption_folder(tmp_path, fmt="csv")


def test_options_as_keywords(tiny_captioner: Captioner) -> None:
    both = tiny_captioner.caption(PHOTOS[0], CaptionOptions(alternatives=2), beam_size=5, attention=False)
    assert len(both.alternatives) == 2 and both.words[0].attention is None
    assert both == tiny_captioner.caption(
        PHOTOS[0], CaptionOptions(alternatives=2, beam_size=5, attention=False)
    )
    with pytest.raises(OptionsError, match="unknown option 'beam'; options are beam_size"):
        tiny_captioner.caption(PHOTOS[0], beam=5)
    with pytest.raises(OptionsError, match="beam_size"):
        tiny_captioner.caption(PHOTOS, beam_size=99)


def test_streaming_one_image(tiny_captioner: Captioner) -> None:
    *words, caption = tiny_captioner.stream(PHOTOS[0])
    assert isinstance(caption, Caption) and caption.source == PHOTOS[0]
    assert all(isinstance(word, Word) for word in words) and tuple(words) == caption.words
    assert caption.text == tiny_captioner.caption(PHOTOS[0], beam_size=1).text
    with pytest.raises(OptionsError, match="greedy"):
        list(tiny_captioner.stream(PHOTOS[0], beam_size=3))


def test_each_caption_as_soon_as_it_is_known(tiny_captioner: Captioner) -> None:
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield PHOTOS[len(taken) % 4]

    captions = tiny_captioner.caption_each(endless(), batch_size=2)
    assert isinstance(next(captions), Caption)
    captions.close()
    assert len(taken) <= 12
    with pytest.raises(OptionsError, match="batch_size"):
        tiny_captioner.caption_each(PHOTOS, batch_size=0)


def test_the_embedded_model_has_a_name() -> None:
    assert package.Bundle.load("default").digest == package.Bundle.load().digest


def test_a_gpu_by_number(tiny_bundle: Path) -> None:
    with pytest.raises(package.DeviceError, match="CUDA:7 cannot be used"):
        Captioner.load(tiny_bundle, device="cuda:7")
    for device in ("cuda:", "cuda:x", "gpu", "cpu:0"):
        with pytest.raises(OptionsError, match="device must be one of"):
            Captioner.load(tiny_bundle, device=device)


def test_an_error_in_a_list_shows_its_photo(tiny_captioner: Captioner) -> None:
    [error] = tiny_captioner.caption(["missing.jpg"], return_errors=True)
    assert repr(error) == "ImageUnreadableError('missing.jpg: No such file or directory')"


def test_every_public_name_says_what_it_is() -> None:
    for module in (package, captioner_client):
        for name in module.__all__:
            thing = getattr(module, name)
            parts = vars(thing) if isinstance(thing, type) else {}
            public = {key: getattr(thing, key) for key in parts if not key.startswith("_")}
            for key, part in {"": thing, **public}.items():
                if callable(part):
                    said = inspect.getdoc(part) or ""
                    assert said and "@overload" not in said, f"{module.__name__}.{name}.{key}"


def test_one_image_without_finite_numbers_fails_alone(
    tiny_captioner: Captioner, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = tiny_captioner.preprocess(PHOTOS[2])
    encode = Runtime.encode

    def poisoned(self: Runtime, pixels: np.ndarray, *mask: Any) -> Any:
        """What is remembered of one photo is not a number; images leave the batch while it is decoded."""
        stepper = encode(self, pixels, *mask)
        rows = np.array([np.array_equal(one, worst) for one in pixels])
        changes = {name: value for name, value in stepper.memory.items() if value.dtype == np.float32}
        for value in changes.values():
            value[rows] = np.nan
        return stepper.with_memory(changes)

    monkeypatch.setattr(Runtime, "encode", poisoned)
    for beam_size in (1, 3):
        outcomes = tiny_captioner.caption(PHOTOS, return_errors=True, beam_size=beam_size)
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [Caption, Caption, ModelOutputError, Caption]
    with pytest.raises(ModelOutputError, match="no finite numbers"):
        tiny_captioner.caption(PHOTOS)
    with pytest.raises(ModelOutputError):
        list(tiny_captioner.stream(PHOTOS[2]))


def test_every_public_name_can_be_imported_and_errors_are_all_there() -> None:
    import captioner.errors as errors

    for name in package.__all__:
        assert getattr(package, name) is not None
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    kinds = {kind.__name__ for kind in classes if kind.__module__ == errors.__name__}
    assert kinds <= set(package.__all__)


def test_what_the_readme_shows_passes_a_strict_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import numpy as np
        from captioner import Caption, Captioner, CaptionOptions, ImageCaptioner
        from captioner_client import CaptionClient, render_overlay

        def describe(captioner: ImageCaptioner) -> Caption:
            print(captioner.caption(["a.jpg"], CaptionOptions(beam_size=3))[0].text)
            return captioner.caption("photo.jpg", beam_size=5)

        captioner = Captioner.load()
        [one] = captioner.caption(["photo.jpg"])
        rows, columns = one.words[0].attention.shape
        caption = captioner.caption(np.zeros((4, 4, 3), np.uint8))
        print(caption.text, str(caption), caption.confidence, caption.words[0].probability, caption.to_dict())
        describe(captioner)
        with CaptionClient("localhost:50051") as client:
            caption = describe(client)
        render_overlay("photo.jpg", caption).save("overlay.png")
        """)
    )
    arguments = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)]
    checked = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from captioner import Captioner", "Captioner.load(BUNDLE).caption([PHOTO])"),
        ("from captioner_client import CaptionClient", "CaptionClient('127.0.0.1:1').caption(PHOTO)"),
        *(
            (f"from captioner_client import AsyncCaptionClient; {more}", f"asyncio.run({call})")
            for more in ("import asyncio", "import asyncio, concurrent.futures.thread")
            for call in (
                "AsyncCaptionClient('127.0.0.1:1').caption(PHOTO)",
                "AsyncCaptionClient('127.0.0.1:1').caption([PHOTO])",
            )
        ),
    ],
)
def test_a_thread_that_outlives_the_main_thread_is_told_to_be_joined(
    tiny_bundle: Path, imports: str, call: str
) -> None:
    code = f"""if 1:
        import threading
        from captioner.errors import CaptionerError
        {imports}
        BUNDLE, PHOTO = {str(tiny_bundle)!r}, {str(PHOTOS[0])!r}

        def work():
            threading.main_thread().join()
            try:
                {call}
            except CaptionerError as error:
                print(error)

        threading.Thread(target=work).start()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "outlived the main thread: join() it" in done.stdout, done.stderr
