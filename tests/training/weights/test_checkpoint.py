"""Checkpoints are whole or not there, and run nothing."""

from __future__ import annotations

import io
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from support import squares
from support.disks import filled

from captioner.errors import DataError, OutputError
from captioner.model.vocabulary import SPECIAL
from captioner.nn.model import CaptionModel
from captioner.training.weights import checkpoint


def contents(**changes: Any) -> dict[str, Any]:
    words = [*SPECIAL, "a", "red", "square"]
    options = squares.options()
    state = CaptionModel(options.model, len(words)).state_dict()
    return {"options": options.to_dict(), "vocabulary": words, "model": state, **changes}


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved = contents(history=[{"loss": 1.5, "val": {"x": {"cider": 2.0}}}], position=[0, 1, 2])
    checkpoint.save(tmp_path / "last.pt", saved)
    loaded = checkpoint.load(tmp_path / "last.pt")
    assert loaded["history"] == saved["history"] and loaded["position"] == [0, 1, 2]
    for name, value in saved["model"].items():
        assert torch.equal(loaded["model"][name], value)
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


def test_a_model_is_ready_for_inference(tmp_path: Path) -> None:
    saved = contents()
    checkpoint.save(tmp_path / "best.pt", saved | {"model": checkpoint.halved(saved["model"])})
    model, vocabulary, options, _ = checkpoint.load_model(tmp_path / "best.pt")
    assert not model.training and options == squares.options()
    assert vocabulary.words == tuple(saved["vocabulary"])
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.decoder.embedding.bias, saved["model"]["decoder.embedding.bias"])


def test_ids_of_words_are_not_rounded() -> None:
    halved = checkpoint.halved({"weight": torch.tensor([0.1]), "following_token": torch.tensor([3001])})
    assert halved["weight"].dtype == torch.float16
    assert halved["following_token"].tolist() == [3001]  # 3000 in half precision


def test_a_model_takes_the_average_where_there_is_one(tmp_path: Path) -> None:
    saved = contents()
    average = {"decoder.embedding.bias": torch.full_like(saved["model"]["decoder.embedding.bias"], 7.0)}
    checkpoint.save(tmp_path / "last.pt", saved | {"ema": average})
    model, *_ = checkpoint.load_model(tmp_path / "last.pt")
    assert (model.decoder.embedding.bias == 7).all()
    # Without averaging, what was kept under that name are the weights of the start.
    saved = contents(options=squares.options(ema_decay=0.0).to_dict())
    checkpoint.save(tmp_path / "last.pt", saved | {"ema": average})
    model, *_ = checkpoint.load_model(tmp_path / "last.pt")
    assert torch.equal(model.decoder.embedding.bias, saved["model"]["decoder.embedding.bias"])


def test_statistics_of_batch_normalisation_come_with_the_average(tmp_path: Path) -> None:
    options = squares.options()
    values = options.to_dict()
    values["model"]["encoder"] = "mobilenet_v3_small"
    saved = contents(options=values)
    model = CaptionModel(type(options).from_dict(values).model, len(saved["vocabulary"]))
    statistics = next(name for name in model.state_dict() if name.endswith("running_mean"))
    model.state_dict()[statistics].fill_(0.25)
    average = {name: p.detach() for name, p in model.named_parameters()}
    checkpoint.save(tmp_path / "last.pt", saved | {"model": model.state_dict(), "ema": average})
    loaded, *_ = checkpoint.load_model(tmp_path / "last.pt")
    assert (loaded.state_dict()[statistics] == 0.25).all()


SAVING = """
import sys, torch
from pathlib import Path
from captioner.training.weights import checkpoint
number = 0
while True:
    number += 1
    checkpoint.save(Path(sys.argv[1]), {"number": number, "model": torch.full((50_000,), float(number))})
    print(number, flush=True)
"""


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    times = random.Random(0)
    with subprocess.Popen([sys.executable, "-c", SAVING, path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline()
        for _ in range(5):  # the process is stopped, not ended: its files lie as a kill would leave them
            time.sleep(times.uniform(0.01, 0.2))
            os.kill(process.pid, signal.SIGSTOP)
            loaded = checkpoint.load(path)
            assert (loaded["model"] == loaded["number"]).all()
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
    assert (checkpoint.load(path)["model"] == checkpoint.load(path)["number"]).all()


@pytest.mark.parametrize("leave", [0, 4096, 100_000])
def test_a_full_disk_leaves_the_checkpoint_before(mount, leave: int) -> None:
    disk = mount("-t", "tmpfs", "-o", "size=2m", "tmpfs")
    path = disk / "last.pt"
    checkpoint.save(path, {"model": torch.zeros(1000)})
    with filled(disk, leave), pytest.raises(OutputError, match=r"last\.pt: No space left"):
        checkpoint.save(path, {"model": torch.zeros(100_000)})
    assert [file.name for file in disk.iterdir()] == ["last.pt"]
    assert checkpoint.load(path)["model"].shape == (1000,)


class _Malice:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_a_malicious_checkpoint_is_refused_and_does_nothing(tmp_path: Path, writer: str) -> None:
    path, mark = tmp_path / "best.pt", tmp_path / "mark"
    if writer == "torch":
        torch.save({"format": checkpoint.FORMAT, "model": _Malice(mark)}, path)
    else:
        path.write_bytes(pickle.dumps(_Malice(mark)))
    with pytest.raises(DataError, match=r"best\.pt is not a file of tensors and plain values"):
        checkpoint.load_model(path)
    assert not mark.exists()


def rewritten(path: Path, method: int = zipfile.ZIP_STORED, pickled: bytes | None = None) -> None:
    """Write the members of a checkpoint anew, with `pickled` in place of what it holds."""
    with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as old, zipfile.ZipFile(path, "w", method) as new:
        for member in old.infolist():
            is_pickle = pickled is not None and member.filename.endswith("data.pkl")
            new.writestr(member.filename, pickled if is_pickle else old.read(member))


def test_a_checkpoint_with_compressed_members_is_refused_unread(tmp_path: Path) -> None:
    """PyTorch never compresses: 49 KB took 4.3 GB and half a minute."""
    path = tmp_path / "best.pt"
    checkpoint.save(path, contents(zeros=torch.zeros(2**22)))
    rewritten(path)
    checkpoint.load_model(path)
    rewritten(path, zipfile.ZIP_DEFLATED)
    with pytest.raises(DataError, match=r"best\.pt has compressed members, which PyTorch does not write"):
        checkpoint.load_model(path)


def test_members_of_a_checkpoint_do_not_share_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    checkpoint.save(path, {"a": torch.zeros(2**10)})
    with zipfile.ZipFile(path, "a") as file:
        [member] = (member for member in file.infolist() if member.filename.endswith("data/0"))
        for number in range(1, 9):
            again = zipfile.ZipInfo(member.filename.replace("data/0", f"data/{number}"))
            for name in ("header_offset", "compress_size", "file_size", "CRC"):
                setattr(again, name, getattr(member, name))
            file.filelist.append(again)
        file._didModify = True  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="unfolds to more than it has"):
        checkpoint.load_model(path)


BYTEARRAY = b"\x80\x02}X\x01\0\0\0acbuiltins\nbytearray\nJ\0\0\1\0\x85Rs."
CYCLE = b"\x80\x02}q\0X\x05\0\0\0modelh\0s."
DOUBLING = b"\x80\x02}X\x05\0\0\0model]" + b"q\0]h\0ah\0a" * 60 + b"s."


@pytest.mark.parametrize("pickled", [BYTEARRAY, CYCLE, DOUBLING], ids=["bytearray", "cycle", "doubling"])
def test_a_checkpoint_whose_values_unfold_is_refused(tmp_path: Path, pickled: bytes) -> None:
    path = tmp_path / "best.pt"
    checkpoint.save(path, {"a": torch.zeros(1)})
    rewritten(path, pickled=pickled)
    with pytest.raises(DataError, match=r"best\.pt (unfolds|is not a file of tensors)") as raised:
        checkpoint.load_model(path)
    assert "\n" not in str(raised.value)


def test_a_tensor_that_repeats_its_values_is_refused(tmp_path: Path) -> None:
    """A copy in another precision would have all of them."""
    path = tmp_path / "best.pt"
    checkpoint.save(path, contents(model={"a": torch.zeros(1).half().expand(2**20, 2**20)}))
    with pytest.raises(DataError, match="unfolds to more than it has"):
        checkpoint.load_model(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    """Opening it would wait for a writer."""
    os.mkfifo(tmp_path / "best.pt")
    with pytest.raises(DataError, match=r"best\.pt is not a plain file"):
        checkpoint.load_model(tmp_path / "best.pt")


def test_a_damaged_checkpoint_is_refused_or_whole(tmp_path: Path) -> None:
    path = tmp_path / "best.pt"
    checkpoint.save(path, {"model": {"a": torch.randn(20, 20)}, "vocabulary": ["a"] * 30})
    good = path.read_bytes()
    chance = random.Random(0)
    refused = 0
    for number in range(300):
        bad = bytearray(good)
        if number % 3:
            for _ in range(chance.choice([1, 5, 50])):
                bad[chance.randrange(len(bad))] = chance.randrange(256)
        else:
            bad = bad[: chance.randrange(len(bad))]
        path.write_bytes(bad)
        try:
            checkpoint.load_model(path)
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused == 300  # there is no model in it


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 2}, "not a captioner checkpoint of format 1"),
        ({"format": None}, "not a captioner checkpoint of format 1"),
        ({"vocabulary": ["a"]}, r"cannot load the checkpoint .*: a vocabulary starts with"),
        ({"vocabulary": None}, "cannot load the checkpoint"),
        ({"vocabulary": [*SPECIAL, "a"]}, "cannot load the checkpoint"),
        ({"model": {}}, r"cannot load the checkpoint .*: .* Missing key.*encoder\."),
        ({"model": None}, "cannot load the checkpoint"),
        ({"model": {"a": "text"}}, "cannot load the checkpoint"),
        ({"options": {}}, "missing name"),
        ({"options": 3}, "expected a table"),
    ],
)
def test_a_checkpoint_of_something_else(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    checkpoint.save(tmp_path / "best.pt", contents(**changes))
    with pytest.raises(DataError, match=reason) as raised:
        checkpoint.load_model(tmp_path / "best.pt")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"refiner_layers": 200_000}, "refiner_layers must be at most 100, got 200000"),
        ({"decoder": "transformer", "layers": 200_000}, "layers must be at most 100, got 200000"),
        ({"features": 2_000_000}, "does not fit into the memory"),
        ({"refiner_layers": 90, "features": 1600}, "does not fit into the memory"),  # 80 MB each
        ({"hidden": 10**10}, "does not fit into the memory"),
    ],
)
def test_a_model_that_is_far_larger_than_its_checkpoint_is_not_built(
    tmp_path: Path, changes: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioner.nn.within_memory.available_memory", lambda: 2 * 10**8)
    options = squares.options().to_dict()
    options["model"] |= changes
    checkpoint.save(tmp_path / "best.pt", contents(options=options))
    with pytest.raises(DataError, match=reason):
        checkpoint.load_model(tmp_path / "best.pt")


@pytest.mark.parametrize("kind", ["missing", "folder", "empty", "list"])
def test_what_is_no_checkpoint(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "best.pt"
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "list":
        torch.save([1, 2], path)
    with pytest.raises(DataError, match=r"best\.pt") as raised:
        checkpoint.load_model(path)
    assert "\n" not in str(raised.value)
