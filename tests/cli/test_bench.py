"""`captioner bench`: what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.cli.main import main

PHOTO = str(Path(__file__).parents[2] / "examples" / "cat.jpg")


def test_a_measurement_is_not_of_a_server(capsys) -> None:
    assert main(["bench", PHOTO, "--server", "localhost:1"]) == 2
    assert capsys.readouterr().err == "captioner: --server: bench measures a model on this machine\n"
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    assert "--server" not in capsys.readouterr().out


def test_a_measurement_names_the_photo_that_it_cannot_read(tiny_bundle, tmp_path, capsys) -> None:
    (tmp_path / "notes.txt").write_text("no photo")
    for place, reason in (("nowhere.jpg", "No such file or directory"), ("notes.txt", "not an image in a")):
        photo = str(tmp_path / place)
        assert main(["bench", PHOTO, photo, "--model", str(tiny_bundle), "--device", "cpu"]) == 2
        assert capsys.readouterr().err.startswith(f"captioner: {photo}: {reason}")


def test_a_measurement_reads_no_urls(capsys) -> None:
    assert main(["bench", PHOTO, "https://example.org/cat.jpg"]) == 2
    said = "captioner: https://example.org/cat.jpg: bench reads files, and no URLs\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    "flags", [("--batch-sizes", "1", "1" + "0" * 19), ("--seconds", "inf"), ("--seconds", "nan")]
)
def test_a_measurement_has_an_end(flags: tuple[str, ...], capsys) -> None:
    assert main(["bench", "--device", "cpu", *flags]) == 2
    assert capsys.readouterr().err.startswith(f"captioner: {flags[0]} must be ")
