"""The contract of the library, on a real bundle."""

from __future__ import annotations

import dataclasses
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner import (
    Caption,
    Captioner,
    CaptionOptions,
    ImageLimits,
    ImageTooLargeError,
    ImageUnreadableError,
    NotAnImageError,
    OptionsError,
    Word,
)
from captioner.model.bundle import Bundle, change_manifest
from captioner.model.caption_builder import CaptionBuilder

EXAMPLES = Path(__file__).parents[1] / "examples"
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))[:6]


@pytest.fixture(scope="module")
def pixels(tiny_captioner: Captioner) -> np.ndarray:
    return np.stack([tiny_captioner.preprocess(photo) for photo in PHOTOS])


def same(one: Caption, two: Caption, tolerance: float = 1e-4) -> None:
    assert one.text == two.text
    assert one.log_prob == pytest.approx(two.log_prob, abs=tolerance)
    assert [w.text for w in one.words] == [w.text for w in two.words]
    for ours, theirs in zip(one.words, two.words, strict=True):
        assert ours.log_prob == pytest.approx(theirs.log_prob, abs=tolerance)
        if ours.attention is not None:
            np.testing.assert_allclose(ours.attention, theirs.attention, atol=tolerance)


def test_what_a_model_says_of_itself(tiny_captioner: Captioner) -> None:
    assert tiny_captioner.name == "tiny" and len(tiny_captioner.digest) == 64
    assert tiny_captioner.model == f"tiny@{tiny_captioner.digest[:12]}"
    assert (tiny_captioner.device, tiny_captioner.provider) == ("cpu", "CPUExecutionProvider")
    assert tiny_captioner.grid == (4, 4)
    assert tiny_captioner.defaults == tiny_captioner.defaults.resolve(CaptionOptions())


def test_a_caption_consists_of_its_words(tiny_captioner: Captioner) -> None:
    [caption] = tiny_captioner.caption([PHOTOS[0]])
    assert caption.text == " ".join(word.text for word in caption.words)
    assert 3 <= len(caption.words) <= 12
    assert caption.model == tiny_captioner.model and caption.source == PHOTOS[0]
    assert all(word.log_prob <= 0 for word in caption.words)
    # The end token has a share of its own.
    assert caption.log_prob <= sum(word.log_prob for word in caption.words)
    assert caption.alternatives == ()


def test_maps_cover_the_image_and_sum_to_one(tiny_captioner: Captioner) -> None:
    for caption in tiny_captioner.caption(PHOTOS):
        for word in caption.words:
            assert word.attention is not None and word.sentinel is None
            assert word.attention.shape == (4, 4) and word.attention.dtype == np.float32
            assert (word.attention >= 0).all()
            assert float(word.attention.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 3), (3, 0), (3, 3), (1, 2)])
def test_maps_lie_as_the_image_does(tiny_captioner: Captioner, row: int, column: int) -> None:
    """The tiny model looks at what is bright; the photo is wide, so that rows cannot pass for columns."""
    photo = Image.new("RGB", (400, 100), (60, 60, 60))
    photo.paste((255, 255, 255), (column * 100, row * 25, column * 100 + 100, row * 25 + 25))
    [caption] = tiny_captioner.caption([photo])
    assert caption.words[0].attention is not None
    assert divmod(int(caption.words[0].attention.argmax()), 4) == (row, column)
    # Lying on its side with a note to turn it, the same photo.
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    photo.transpose(Image.Transpose.ROTATE_90).save(file, "PNG", exif=exif)
    [turned] = tiny_captioner.caption([file.getvalue()])
    same(turned, caption)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 4), (7, 7), (16, 9), (64, 64)])
def test_maps_of_another_size(tiny_captioner: Captioner, size: tuple[int, int]) -> None:
    options = CaptionOptions(attention_size=size)
    for caption, plain in zip(
        tiny_captioner.caption(PHOTOS, options), tiny_captioner.caption(PHOTOS), strict=True
    ):
        assert caption.text == plain.text
        for word in caption.words:
            assert word.attention is not None and word.attention.shape == size
            assert (word.attention >= 0).all()
            assert float(word.attention.sum()) == pytest.approx(1, abs=1e-4)


def test_larger_maps_keep_their_place(tiny_captioner: Captioner) -> None:
    photo = Image.new("RGB", (64, 64), (60, 60, 60))
    photo.paste((255, 255, 255), (48, 0, 64, 16))
    [caption] = tiny_captioner.caption([photo], CaptionOptions(attention_size=(40, 20)))
    assert caption.words[0].attention is not None
    row, column = divmod(int(caption.words[0].attention.argmax()), 20)
    assert row < 12 and column >= 14


def test_maps_may_be_left_out(tiny_captioner: Captioner) -> None:
    [caption] = tiny_captioner.caption(PHOTOS[:1], CaptionOptions(attention=False))
    assert caption.words and all(word.attention is None for word in caption.words)


def test_paths_bytes_and_pictures_are_the_same(tiny_captioner: Captioner) -> None:
    path = PHOTOS[1]
    with Image.open(path) as picture:
        found = tiny_captioner.caption([path, str(path), path.read_bytes(), picture])
    for caption in found[1:3]:
        same(caption, found[0], 1e-6)
    # A picture that is decoded already cannot be decoded at reduced size, which shows in the last bits.
    assert found[3].text == found[0].text
    assert found[2].source == path.read_bytes()


def test_order_is_kept_over_batches(tiny_captioner: Captioner) -> None:
    images = [*PHOTOS, *reversed(PHOTOS), *PHOTOS]
    alone = {photo: tiny_captioner.caption([photo])[0].text for photo in PHOTOS}
    assert len(set(alone.values())) > 1
    assert [c.text for c in tiny_captioner.caption(images, batch_size=5)] == [alone[i] for i in images]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.9])
def test_a_caption_does_not_depend_on_its_batch(tiny_captioner: Captioner, pixels, beam, alpha) -> None:
    options = CaptionOptions(beam_size=beam, length_normalization=alpha)
    together = tiny_captioner.caption_pixels(pixels, options)
    for number, caption in enumerate(together):
        [alone] = tiny_captioner.caption_pixels(pixels[number : number + 1], options)
        same(alone, caption)


def test_images_of_a_batch_may_have_options_of_their_own(tiny_captioner: Captioner, pixels) -> None:
    several = [
        CaptionOptions(),
        CaptionOptions(beam_size=1),
        CaptionOptions(max_words=2),
        CaptionOptions(length_normalization=1.5, no_repeat_ngram=1),
        CaptionOptions(beam_size=2, alternatives=4),
        CaptionOptions(attention=False),
        CaptionOptions(attention_size=(5, 4)),
        CaptionOptions(include=(tiny_captioner.bundle.vocabulary.words[-1],)),
    ]
    images = np.resize(pixels, (len(several), *pixels.shape[1:]))
    for image, options, caption in zip(
        images, several, tiny_captioner.caption_pixels(images, several), strict=True
    ):
        [alone] = tiny_captioner.caption_pixels(image[None], options)
        same(caption, alone)
        assert [one.text for one in caption.alternatives] == [one.text for one in alone.alternatives]


def test_failures_stand_in_the_place_of_their_images(tiny_captioner: Captioner, tmp_path: Path) -> None:
    text = tmp_path / "notes.jpg"
    text.write_text("no photo")
    images = [PHOTOS[0], text, PHOTOS[1], tmp_path / "missing.jpg", b"", tmp_path]
    found = tiny_captioner.caption(images, batch_size=2, return_errors=True)
    kinds = [type(item) for item in found]
    assert kinds == [
        Caption, NotAnImageError, Caption, ImageUnreadableError, NotAnImageError, ImageUnreadableError
    ]  # fmt: skip
    for caption, photo in ((found[0], PHOTOS[0]), (found[2], PHOTOS[1])):
        assert isinstance(caption, Caption)
        same(caption, tiny_captioner.caption([photo])[0])
    with pytest.raises(NotAnImageError):
        tiny_captioner.caption(images)
    assert [type(e) for e in tiny_captioner.caption([text], return_errors=True)] == [NotAnImageError]


def test_the_traceback_of_an_image_error_names_the_file(tiny_captioner, tmp_path):
    (tmp_path / "empty.jpg").touch()
    for images in (tmp_path / "empty.jpg", [PHOTOS[0], str(tmp_path / "empty.jpg")]):
        with pytest.raises(NotAnImageError) as caught:
            tiny_captioner.caption(images)
        assert str(caught.value).startswith(f"{tmp_path / 'empty.jpg'}: the file is empty")


@pytest.mark.parametrize("gone_first", [False, True])
def test_an_error_among_several_images_names_it_and_keeps_the_captions(tiny_captioner, tmp_path, gone_first):
    gone = str(tmp_path / "gone.jpg")
    images = [gone, *PHOTOS[:2]] if gone_first else [*PHOTOS[:2], gone]
    with pytest.raises(ImageUnreadableError) as caught:
        tiny_captioner.caption(images)
    error = caught.value
    assert str(error).startswith(f"{gone}: No such file or directory (1 of 3 images failed")
    assert (error.image, error.index) == (gone, images.index(gone))
    captions = [outcome for outcome in error.outcomes if isinstance(outcome, Caption)]
    for caption, photo in zip(captions, PHOTOS[:2], strict=True):
        same(caption, tiny_captioner.caption(photo))
    assert str(error.outcomes[error.index]) == "No such file or directory"
    with pytest.raises(NotAnImageError, match=r"^image 1: the file is empty"):
        tiny_captioner.caption([PHOTOS[0], b""])


def test_base64_in_place_of_a_path_is_told_apart(tiny_captioner):
    for start in ("/9j/4AAQ", "iVBORw0KGgo"):
        with pytest.raises(ImageUnreadableError, match="Decode it first") as raised:
            tiny_captioner.caption(start + "A" * 20000)
        assert len(str(raised.value)) < 400


def test_an_error_in_the_place_of_an_image_is_passed_on(tiny_captioner):
    error = ImageUnreadableError("left out")
    first, second, third = tiny_captioner.caption_each([PHOTOS[0], error, PHOTOS[1]])
    assert second is error and isinstance(first, Caption) and isinstance(third, Caption)


def test_a_second_image_in_the_place_of_the_options(tiny_captioner):
    with pytest.raises(OptionsError, match="options must be CaptionOptions, got str"):
        tiny_captioner.caption(PHOTOS[0], str(PHOTOS[1]))


def test_a_captioner_has_limits_of_images(tiny_bundle: Path) -> None:
    captioner = Captioner.load(tiny_bundle, device="cpu", threads=1, limits=ImageLimits(max_pixels=1000))
    with pytest.raises(ImageTooLargeError, match="max_pixels"):
        captioner.caption([PHOTOS[0]])


def test_nothing_to_caption(tiny_captioner: Captioner) -> None:
    assert tiny_captioner.caption([]) == []
    assert tiny_captioner.caption_pixels(np.zeros((0, 64, 64, 3), dtype=np.uint8)) == []


def test_alternatives_come_best_first(tiny_captioner: Captioner) -> None:
    [caption] = tiny_captioner.caption(PHOTOS[:1], CaptionOptions(beam_size=5, alternatives=4))
    texts = [caption.text, *(other.text for other in caption.alternatives)]
    scores = [caption.log_prob, *(other.log_prob for other in caption.alternatives)]
    assert len(texts) == len(set(texts)) == 5
    assert scores == sorted(scores, reverse=True)
    # More than the beam holds are there too, and the best stays what it was.
    [many] = tiny_captioner.caption(PHOTOS[:1], CaptionOptions(alternatives=9))
    [alone] = tiny_captioner.caption(PHOTOS[:1])
    assert len(many.alternatives) == 9 and many.text == alone.text
    assert alone.text not in [other.text for other in many.alternatives]


def test_streaming_refuses_words_to_include(tiny_captioner: Captioner, pixels: np.ndarray) -> None:
    word = tiny_captioner.bundle.vocabulary.words[-1]
    with pytest.raises(OptionsError, match="cannot be streamed"):
        list(tiny_captioner.stream_pixels(pixels, CaptionOptions(include=(word,))))


def test_options_left_open_are_the_models(copy: Path, pixels: np.ndarray) -> None:
    change_manifest(copy, {"decoding": {"beam_size": 2, "max_words": 2}})
    short = Captioner.load(copy, device="cpu", threads=1)
    assert (short.defaults.beam_size, short.defaults.max_words) == (2, 2)
    assert {len(c.words) for c in short.caption_pixels(pixels)} <= {1, 2}
    longer = short.caption_pixels(pixels, CaptionOptions(max_words=16))
    assert max(len(c.words) for c in longer) > 2


def test_the_word_limit(tiny_captioner: Captioner, pixels: np.ndarray) -> None:
    for caption in tiny_captioner.caption_pixels(pixels, CaptionOptions(max_words=3)):
        assert 1 <= len(caption.words) <= 3


def test_a_batch_of_none(tiny_captioner: Captioner) -> None:
    with pytest.raises(OptionsError, match="batch_size"):
        tiny_captioner.caption(PHOTOS, batch_size=0)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((1, 32, 32, 3), dtype=np.uint8),
        np.zeros((1, 64, 64, 3), dtype=np.float32),
        np.zeros((64, 64, 3), dtype=np.uint8),
        np.zeros((1, 3, 64, 64), dtype=np.uint8),
    ],
    ids=["size", "type", "no batch", "channels first"],
)
def test_pixels_that_do_not_fit(tiny_captioner: Captioner, wrong: np.ndarray) -> None:
    with pytest.raises(OptionsError, match="pixels must be uint8 of 64 x 64 x 3"):
        tiny_captioner.caption_pixels(wrong)


def test_pixels_need_not_lie_in_order(tiny_captioner: Captioner, pixels: np.ndarray) -> None:
    mirrored = pixels[:, :, ::-1]
    for one, two in zip(
        tiny_captioner.caption_pixels(mirrored), tiny_captioner.caption_pixels(mirrored.copy()), strict=True
    ):
        same(one, two)


def test_a_stream_is_the_greedy_caption(tiny_captioner: Captioner, pixels: np.ndarray) -> None:
    for one in pixels:
        *words, caption = tiny_captioner.stream_pixels(one)
        assert isinstance(caption, Caption) and all(isinstance(word, Word) for word in words)
        assert tuple(words) == caption.words
        [greedy] = tiny_captioner.caption_pixels(one[None], CaptionOptions(beam_size=1))
        same(caption, greedy)
        assert caption.model == tiny_captioner.model


def test_many_threads_at_once(tiny_captioner: Captioner, pixels: np.ndarray) -> None:
    expected = tiny_captioner.caption_pixels(pixels)

    def work(number: int) -> None:
        part = pixels[number % 3 : number % 3 + 3]
        if number % 4 == 3:
            *_, caption = tiny_captioner.stream_pixels(part[0], CaptionOptions(beam_size=1))
            assert isinstance(caption, Caption)
        else:
            found = tiny_captioner.caption_pixels(part)
            for ours, theirs in zip(found, expected[number % 3 :], strict=False):
                same(ours, theirs)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))


def test_a_sentinel_takes_its_share(tiny_bundle: Path) -> None:
    """A model with a visual sentinel has maps that sum to what is left; here by way of a made-up step."""
    bundle = dataclasses.replace(Bundle.load(tiny_bundle), has_sentinel=True)
    options = CaptionOptions(attention_size=(8, 8)).resolve(bundle.decoding)
    for share in (0.25, 0.0):
        grid = np.full(16, share / 16, dtype=np.float32)
        word = CaptionBuilder(bundle).word(5, -0.5, grid, np.ones((4, 4), dtype=np.bool_), options)
        assert word.sentinel == pytest.approx(1 - share)
        assert word.attention is not None
        assert float(word.attention.sum()) == pytest.approx(share)


# -- a model that letterboxes ------------------------------------------------------------------------------

SHAPES = {(400, 100): (1, 4), (100, 400): (4, 1), (300, 200): (3, 4), (90, 90): (4, 4), (2000, 100): (1, 4)}
"""Width and height of photos, and the rows and columns of their maps: the square has 4 x 4."""


def bright(width: int, height: int, cell: int, grid: tuple[int, int]) -> Image.Image:
    """A dark photo with one bright cell."""
    (rows, columns), (row, column) = grid, divmod(cell, grid[1])
    photo = Image.new("RGB", (width, height), (60, 60, 60))
    box = column * width / columns, row * height / rows, width / columns, height / rows
    photo.paste((255, 255, 255), tuple(map(round, (box[0], box[1], box[0] + box[2], box[1] + box[3]))))
    return photo


@pytest.fixture(scope="module")
def shapes(letterboxed_captioner: Captioner) -> np.ndarray:
    """One batch of photos of all shapes."""
    photos = [Image.open(PHOTOS[at]).resize(size) for at, size in enumerate(SHAPES)]
    return np.stack([letterboxed_captioner.preprocess(photo) for photo in photos])


def test_letterboxed_maps_have_the_photos_shape(letterboxed_captioner: Captioner, shapes) -> None:
    assert letterboxed_captioner.grid == (4, 4) and letterboxed_captioner.grid_varies
    for caption, grid in zip(letterboxed_captioner.caption_pixels(shapes), SHAPES.values(), strict=True):
        assert caption.words
        for word in caption.words:
            assert word.attention is not None and word.attention.dtype == np.float32
            assert word.attention.shape == grid
            assert (word.attention >= 0).all()
            assert float(word.attention.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("size", "grid"), SHAPES.items())
def test_letterboxed_maps_lie_as_the_photo_does(letterboxed_captioner: Captioner, size, grid) -> None:
    cells = list(range(grid[0] * grid[1]))
    found = letterboxed_captioner.caption([bright(*size, cell, grid) for cell in cells])
    assert [np.argmax(caption.words[0].attention) for caption in found] == cells


@pytest.mark.parametrize("beam", [1, 3])
def test_a_letterboxed_caption_does_not_depend_on_its_batch(
    letterboxed_captioner: Captioner, shapes: np.ndarray, beam: int
) -> None:
    options = CaptionOptions(beam_size=beam)
    together = letterboxed_captioner.caption_pixels(shapes, options)
    for one, caption in zip(shapes, together, strict=True):
        [alone] = letterboxed_captioner.caption_pixels(one[None], options)
        same(alone, caption)
        if beam == 1:
            *_, streamed = letterboxed_captioner.stream_pixels(one)
            assert isinstance(streamed, Caption)
            same(streamed, caption)


def test_padding_is_never_looked_at(letterboxed_captioner: Captioner, shapes: np.ndarray) -> None:
    """Whatever is there: convolutions see it, near the edge of the photo, but no word looks at it."""
    other = shapes.copy()
    other[other[..., 3] == 0, :3] = (255, 255, 255)  # what this model looks at first
    letterbox = letterboxed_captioner.bundle.letterbox
    assert letterbox is not None
    mask = letterbox.mask(shapes).reshape(len(shapes), -1)
    tokens = np.full((len(shapes), 1), letterboxed_captioner.bundle.vocabulary.start_id)
    for pixels in (shapes, other):
        shown = letterboxed_captioner.encode(pixels)
        _, attention, _ = shown.step(tokens, shown.start(1))
        assert (attention[:, 0][~mask] == 0).all()
        np.testing.assert_allclose(attention[:, 0].sum(axis=1), 1, atol=1e-5)


def test_letterboxed_maps_of_another_size(letterboxed_captioner: Captioner, shapes: np.ndarray) -> None:
    for size in ((4, 4), (1, 1), (9, 5)):
        for caption in letterboxed_captioner.caption_pixels(shapes, CaptionOptions(attention_size=size)):
            for word in caption.words:
                assert word.attention is not None and word.attention.shape == size
                assert float(word.attention.sum()) == pytest.approx(1, abs=1e-4)


def test_letterboxed_pixels_tell_where_the_photo_is(letterboxed_captioner: Captioner, shapes) -> None:
    with pytest.raises(OptionsError, match="uint8 of 64 x 64 x 4"):
        letterboxed_captioner.caption_pixels(np.ascontiguousarray(shapes[..., :3]))
    nothing = shapes.copy()
    nothing[1, ..., 3] = 0
    with pytest.raises(OptionsError, match="an image without a photo"):
        letterboxed_captioner.caption_pixels(nothing)
    assert letterboxed_captioner.caption_pixels(shapes[:0]) == []


def test_threads_are_a_number(tiny_bundle: Path) -> None:
    two = Captioner.load(tiny_bundle, device="cpu", threads=np.int64(2), lanes=np.int8(2))  # type: ignore[arg-type]
    assert two.lanes == 2 and repr(two._runtime.threads) == "2"
    with pytest.raises(OptionsError, match=r"threads must be from 1 to \d+, got '2'"):
        Captioner.load(tiny_bundle, device="cpu", threads="2")  # type: ignore[arg-type]
    assert Captioner.load(tiny_bundle, device="cpu", threads=np.int64(1))  # type: ignore[arg-type]
