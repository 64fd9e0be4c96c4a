"""Every attention from the command line to what a user sees: trained, exported, shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.serving import serve

from captioner.captioner import Captioner
from captioner.cli.main import main
from captioner.errors import OptionsError
from captioner.model.bundle import Bundle
from captioner.nn.attention import ATTENTIONS
from captioner.options import CaptionOptions
from captioner.results import Caption
from captioner.training.weights import checkpoint
from captioner_client import CaptionClient

CONFIG = """
name = "squares"
weights = "random"
min_count = 1
max_words = 8
ema_decay = 0.0

[model]
encoder = "tiny_cnn"
image_size = 32
stride = 8
features = 24
attention_hidden = 16
attention_heads = 4
hidden = 32
embedding = 24

[[data]]
name = "squares"
captions = "captions.json"
images = ["images"]
repeat = 4

[[stages]]
name = "words"
epochs = 4
batch_captions = 20
learning_rate = 1e-2
encoder_learning_rate = 3e-3
warmup_steps = 3
tuned_segments = 3
"""


@pytest.fixture(scope="session")
def config(data: Path) -> Path:
    path = data / "attentions.toml"
    path.write_text(CONFIG)
    return path


def train(config: Path, cache: Path, run: Path, attention: str, decoder: str) -> None:
    places = ["-o", str(run), "--cache", str(cache), "--device", "cpu", "--threads", "1"]
    assert main(["train", str(config), "--attention", attention, "--decoder", decoder, *places]) == 0


def bundle(config: Path, cache: Path, folder: Path, attention: str, decoder: str) -> Path:
    """A bundle of a model trained for a moment; exporting checks that it computes the same."""
    photos = [str(path) for path in sorted((config.parent / "images").iterdir())[-3:]]
    train(config, cache, folder / "run", attention, decoder)
    assert (
        main(["export", str(folder / "run" / "best.pt"), "-o", str(folder / "bundle"), "--images", *photos])
        == 0
    )
    return folder / "bundle"


@pytest.fixture(scope="session")
def with_heads(config: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(config, cache, tmp_path_factory.mktemp("heads"), "multi_head", "two_lstm")


@pytest.fixture(scope="session")
def with_sentinel(config: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(config, cache, tmp_path_factory.mktemp("sentinel"), "visual_sentinel", "lstm")


@pytest.fixture(scope="session")
def photo(data: Path) -> Path:
    return sorted((data / "images").iterdir())[-1]


@pytest.mark.parametrize(
    ("attention", "decoder"),
    [*((attention, "lstm") for attention in ATTENTIONS), ("hard", "up_down"), ("hard", "transformer")],
)
def test_an_attention_is_trained_by_its_name(
    config: Path, cache: Path, tmp_path: Path, attention: str, decoder: str
) -> None:
    train(config, cache, tmp_path, attention, decoder)
    first, *_, last = (json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines())
    assert last["loss"] < 0.8 * first["loss"]
    model, *_ = checkpoint.load_model(tmp_path / "best.pt")
    assert any(type(module) is ATTENTIONS[attention] for module in model.decoder.modules())
    baseline = checkpoint.load(tmp_path / "last.pt")["objectives"]["hard_attention.baseline"]
    assert bool(baseline.isfinite()) == (attention == "hard")


def maps_of(caption: Caption) -> np.ndarray:
    return np.stack([word.attention for word in caption.words if word.attention is not None])


def test_each_head_has_its_maps_and_their_mean_is_the_attention(with_heads: Path, photo: Path) -> None:
    captioner = Captioner.load(with_heads, device="cpu", threads=1)
    assert captioner.heads == 4
    [mean] = captioner.caption([photo])
    asked = [CaptionOptions(attention_head=head) for head in range(4)]
    heads = [captioner.caption([photo], options)[0] for options in asked]
    assert {caption.text for caption in heads} == {mean.text}
    assert all(caption.log_prob == mean.log_prob for caption in heads)
    np.testing.assert_allclose(
        np.mean([maps_of(caption) for caption in heads], axis=0), maps_of(mean), atol=1e-6
    )
    assert np.abs(maps_of(heads[0]) - maps_of(heads[1])).max() > 1e-3
    pixels = captioner.preprocess(photo)
    *_, streamed = captioner.stream_pixels(pixels, CaptionOptions(beam_size=1, attention_head=2))
    [same] = captioner.caption([photo], CaptionOptions(beam_size=1, attention_head=2))
    assert isinstance(streamed, Caption)
    np.testing.assert_allclose(maps_of(streamed), maps_of(same), atol=1e-5)


def test_a_head_that_the_model_lacks_is_an_error_of_the_option(
    with_heads: Path, tiny_bundle: Path, photo: Path
) -> None:
    for place, reason in (
        (with_heads, "the model has no attention_head 4: its heads are 0 to 3"),
        (tiny_bundle, "attention_head is for models with several heads; this one's attention has one"),
    ):
        captioner = Captioner.load(place, device="cpu", threads=1)
        with pytest.raises(OptionsError, match=reason) as caught:
            captioner.caption([photo], CaptionOptions(attention_head=4))
        assert caught.value.field == "attention_head"
        with pytest.raises(OptionsError):
            next(captioner.stream_pixels(captioner.preprocess(photo), CaptionOptions(attention_head=4)))


def test_a_server_gives_the_head_that_is_asked_for(with_heads: Path, photo: Path) -> None:
    captioner = Captioner.load(with_heads, device="cpu", threads=1)
    with serve(captioner) as server, CaptionClient(server.address) as client:
        assert client.get_model().attention_heads == 4
        for head in (None, 0, 3):
            options = CaptionOptions(attention_head=head)
            [local] = captioner.caption([photo], options)
            np.testing.assert_allclose(maps_of(client.caption(photo, options)), maps_of(local), atol=1e-5)
        with pytest.raises(OptionsError, match="its heads are 0 to 3") as caught:
            client.caption(photo, CaptionOptions(attention_head=4))
        assert caught.value.field.endswith("attention_head")


def test_commands_show_a_head(with_heads: Path, photo: Path, tmp_path: Path, capsys) -> None:
    model = ["--model", str(with_heads), "--device", "cpu"]
    found = []
    for head in ([], ["--head", "0"], ["--head", "3"]):
        assert main(["caption", str(photo), "--json", *model, *head]) == 0
        found.append(maps_of(Caption.from_dict(json.loads(capsys.readouterr().out))))
    assert np.abs(found[1] - found[2]).max() > 1e-3 and np.abs(found[0] - found[1]).max() > 1e-3
    pictures = []
    for head in ("0", "3"):
        assert main(["overlay", str(photo), "-o", str(tmp_path / f"{head}.png"), *model, "--head", head]) == 0
        pictures.append((tmp_path / f"{head}.png").read_bytes())
    assert pictures[0] != pictures[1]
    capsys.readouterr()
    assert main(["caption", str(photo), *model, "--head", "4"]) == 2
    assert "the model has no attention_head 4: its heads are 0 to 3" in capsys.readouterr().err
    assert main(["caption", str(photo), *model, "--head", "-1"]) == 2
    assert "--head: attention_head must be from 0 to 63, got -1" in capsys.readouterr().err
    assert main(["model", "show", str(with_heads)]) == 0
    assert "4 x 4, 4 heads" in capsys.readouterr().out


def test_the_share_of_the_sentinel_reaches_the_user(with_sentinel: Path, photo: Path, capsys) -> None:
    assert Bundle.load(with_sentinel).has_sentinel
    captioner = Captioner.load(with_sentinel, device="cpu", threads=1)
    [caption] = captioner.caption([photo])
    for word in caption.words:
        assert word.sentinel is not None and 0 < word.sentinel < 1
        assert word.attention is not None
        assert float(word.attention.sum()) == pytest.approx(1 - word.sentinel, abs=1e-5)
    assert len({round(word.sentinel or 0, 4) for word in caption.words}) > 1
    assert main(["caption", str(photo), "--json", "--model", str(with_sentinel), "--device", "cpu"]) == 0
    record = json.loads(capsys.readouterr().out)
    shares = [word.sentinel for word in caption.words]
    assert [word["sentinel"] for word in record["words"]] == pytest.approx(shares, abs=1e-5)
    with serve(captioner) as server, CaptionClient(server.address) as client:
        remote = client.caption(photo)
    assert [word.sentinel for word in remote.words] == pytest.approx(shares, abs=1e-5)
