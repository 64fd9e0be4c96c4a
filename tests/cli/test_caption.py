"""`captioner caption` as a user calls it, on a real bundle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.photos import photo_with

from captioner.cli.main import main
from captioner.images.limits import DEFAULT_LIMITS
from captioner.options import CaptionOptions
from captioner.surrogates import image_of

EXAMPLES = Path(__file__).parents[2] / "examples"
PHOTOS = [str(EXAMPLES / name) for name in ("cat.jpg", "coffee.jpg", "astronaut.jpg")]


def run_command(
    *arguments: str, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "captioner", *arguments],
        input=stdin,
        capture_output=True,
        timeout=300,
        env={**os.environ, **environment},
    )


def test_a_line_an_image_in_the_order_given(caption, captioner, capsys) -> None:
    names = [*PHOTOS, *reversed(PHOTOS)] * 4  # more than one batch
    assert caption(*names) == 0
    output, errors = capsys.readouterr()
    expected = {name: found.text for name, found in zip(PHOTOS, captioner.caption(PHOTOS), strict=True)}
    assert output.splitlines() == [f"{name}\t{expected[name]}" for name in names]
    assert errors == ""


def test_the_confidence_stands_behind_the_caption(caption, capsys) -> None:
    assert main(["caption", PHOTOS[0], "--confidence"]) == 0  # the embedded model has a calibration
    name, _, confidence = capsys.readouterr().out.rstrip("\n").split("\t")
    assert name == PHOTOS[0] and 0 < float(confidence) < 1
    assert caption(PHOTOS[0], "--confidence") == 2
    assert "has not been calibrated, which --confidence needs" in capsys.readouterr().err


def test_captions_of_low_confidence_are_left_out_as_asked(capsys) -> None:
    assert main(["caption", PHOTOS[0], "--min-confidence", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "" and f"{PHOTOS[0]}: left out: confidence 0." in printed.err
    assert main(["caption", PHOTOS[0], "--min-confidence", "0"]) == 0
    assert capsys.readouterr().out.startswith(PHOTOS[0])
    assert main(["caption", PHOTOS[0], "--min-confidence", "2"]) == 2


def test_captions_as_alt_text(caption, captioner, capsys) -> None:
    assert caption(PHOTOS[0], "--style", "alt") == 0
    text = capsys.readouterr().out.rstrip("\n").partition("\t")[2]
    assert text[0].isupper() and text.endswith(".")


def test_lines_go_into_a_file(caption, captioner, capsys, tmp_path) -> None:
    assert caption(*PHOTOS, "missing.jpg", "-o", str(tmp_path / "captions.txt")) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and "missing.jpg: " in printed.err
    lines = (tmp_path / "captions.txt").read_text(encoding="utf-8").splitlines()
    assert [line.partition("\t")[0] for line in lines] == PHOTOS
    assert caption(PHOTOS[0], "-o", str(tmp_path / "captions.jsonl")) == 0
    record = json.loads((tmp_path / "captions.jsonl").read_text(encoding="utf-8"))
    assert record["image"] == PHOTOS[0] and record["words"]


def test_a_dash_as_the_output_is_stdout(caption, captioner, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert caption(PHOTOS[0], "-o", "-") == 0
    assert capsys.readouterr().out == f"{PHOTOS[0]}\t{captioner.caption(PHOTOS[0]).text}\n"
    assert caption(PHOTOS[0], "-o", "./-") == 0
    assert capsys.readouterr().out == "" and Path("./-").is_file()


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("captions.csv", "captioner batch FOLDER -o captions.csv writes .csv files"),
        ("captions.XMP", "captioner batch FOLDER -o FOLDER --format xmp writes .xmp files"),
        ("photo.caption", "captioner batch FOLDER -o FOLDER --format caption writes .caption files"),
        ("captions.json", "caption writes JSON records into .jsonl; captioner batch FOLDER -o captions.json"),
        ("", "is a folder; captioner batch writes into folders"),
        ("nowhere/captions.txt", "there is no folder"),
        ("photo.jpg", "is one of the inputs"),
    ],
)
def test_what_cannot_be_written_is_said_before_captioning(caption, capsys, tmp_path, output, reason) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(Path(PHOTOS[0]).read_bytes())
    assert caption(str(photo), "-o", str(tmp_path / output)) == 2
    assert reason in capsys.readouterr().err and photo.read_bytes() == Path(PHOTOS[0]).read_bytes()


def test_failures_are_named_and_the_others_captioned(caption, capsys, tmp_path) -> None:
    text = tmp_path / "notes.jpg"
    text.write_text("not a photo")
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(Path(PHOTOS[0]).read_bytes()[:5000])
    missing = str(tmp_path / "missing.jpg")
    assert caption(PHOTOS[0], missing, str(text), str(tmp_path), str(cut), PHOTOS[1]) == 1
    output, errors = capsys.readouterr()
    assert [line.split("\t")[0] for line in output.splitlines()] == PHOTOS[:2]
    lines = errors.splitlines()
    assert lines[0] == f"captioner: {missing}: No such file or directory"
    assert lines[1].startswith(f"captioner: {text}: not an image in a known format")
    assert lines[2].startswith(f"captioner: {tmp_path}: is a folder; use --recursive")
    assert lines[3].startswith(f"captioner: {cut}: the JPEG data are damaged, cut short")
    assert len(lines) == 4


def test_json_records(caption, captioner, capsys) -> None:
    assert caption("--json", "--beam", "4", "--alternatives", "2", PHOTOS[0], "missing.jpg") == 1
    output, errors = capsys.readouterr()
    good, bad = (json.loads(line) for line in output.splitlines())
    [expected] = captioner.caption([PHOTOS[0]], CaptionOptions(beam_size=4, alternatives=2))
    assert good == expected.to_dict(PHOTOS[0])
    assert len(good["alternatives"]) == 2 and good["model"] == captioner.model
    assert all(abs(sum(map(sum, word["attention"])) - 1) < 1e-3 for word in good["words"])
    assert bad == {
        "image": "missing.jpg",
        "error": {"code": "unreadable", "message": "No such file or directory"},
    }
    assert errors == "captioner: missing.jpg: No such file or directory\n"


def test_search_flags_reach_the_search(caption, capsys) -> None:
    assert caption("--json", "--max-words", "2", "--attention-size", "3x5", PHOTOS[0]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["words"]) <= 2
    assert {(len(word["attention"]), len(word["attention"][0])) for word in record["words"]} == {(3, 5)}


def test_show_prints_words_with_probabilities(caption, captioner, capsys) -> None:
    assert caption("--show", PHOTOS[0]) == 0
    output = capsys.readouterr().out
    [found] = captioner.caption([PHOTOS[0]])
    assert output.startswith(PHOTOS[0]) and "%" in output
    assert all(word.text in output for word in found.words)


def test_an_image_from_stdin(tiny_bundle, captioner) -> None:
    done = run_command(
        "caption", "--model", str(tiny_bundle), PHOTOS[1], "-", stdin=Path(PHOTOS[0]).read_bytes()
    )
    first, second = captioner.caption(PHOTOS[:2])
    assert done.stdout.decode().splitlines() == [f"{PHOTOS[1]}\t{second.text}", f"-\t{first.text}"]
    assert done.returncode == 0
    done = run_command("caption", "--model", str(tiny_bundle), "-")
    assert done.returncode == 1 and done.stderr.endswith(b"captioner: -: the file is empty\n")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux only")
@pytest.mark.skipif(os.name != "posix", reason="a shell")
@pytest.mark.parametrize(
    "arguments",
    [
        ["caption", PHOTOS[0]],
        ["caption", PHOTOS[0], "--json"],
        ["caption", PHOTOS[0], "--show"],
        ["model", "show"],
        ["--version"],
        ["model", "--help"],
    ],
)
def test_output_that_was_closed_before_the_start(arguments: list[str], tiny_bundle) -> None:
    """The results are lost; they are also where stderr is closed, too."""
    model = ["--model", tiny_bundle] if arguments[0] == "caption" else []
    command = [sys.executable, "-m", "captioner", *arguments, *model]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "captioner: stdout is closed, and the results go there\n")
    done = subprocess.run(["sh", "-c", '"$@" >&- 2>&-', "sh", *command])
    assert done.returncode == 2


@pytest.mark.skipif(os.name != "posix", reason="a shell")
def test_a_closed_output_that_nothing_is_printed_to(tiny_bundle, tmp_path) -> None:
    options = [PHOTOS[0], "--model", tiny_bundle, "-o", tmp_path / "captions.txt"]
    command = [sys.executable, "-m", "captioner", "caption", *options]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "captions.txt").read_text().startswith(PHOTOS[0])


def test_hostile_file_names(tiny_bundle, tmp_path) -> None:
    names = [
        b"tab\there.jpg",
        b"line\nbreak.jpg",
        b"\x1b[31mred.jpg",
        b"latin-\xfc.jpg",
        "grün\u2028.jpg".encode(),
    ]
    files = [tmp_path / os.fsdecode(name) for name in names]
    for file in files:
        file.write_bytes(Path(PHOTOS[0]).read_bytes())
    paths = [os.fsencode(file) for file in files]
    options = ["caption", "--model", str(tiny_bundle), "--device", "cpu"]
    for locale in ("C.UTF-8", "C"):
        done = run_command(*options, *paths, LC_ALL=locale)  # type: ignore[arg-type]
        assert done.returncode == 0, done.stderr
        shown = [line.split(b"\t")[0].rpartition(b"/")[2] for line in done.stdout.splitlines()]
        assert shown == [
            rb"tab\there.jpg",
            rb"line\nbreak.jpg",
            rb"\x1b[31mred.jpg",
            b"latin-\xfc.jpg",
            r"grün\u2028.jpg".encode(),
        ]
    done = run_command(*options, "--json", *paths, LC_ALL="C", PYTHONIOENCODING="cp1252")  # type: ignore[arg-type]
    assert r"grün\u2028.jpg".encode() in done.stdout
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [os.fsencode(image_of(record)) for record in records] == paths


def test_image_limits(caption, capsys) -> None:
    assert caption("--max-pixels", "1000", PHOTOS[0]) == 1
    assert "451 x 300 is more pixels than the limit of 1000" in capsys.readouterr().err
    assert caption("--max-bytes", "1000", PHOTOS[0]) == 1
    assert "more bytes than the limit of 1000" in capsys.readouterr().err
    assert DEFAULT_LIMITS.max_pixels > 100_000_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam", "99"], "--beam: beam_size must be from 1 to 16, got 99"),
        (["--alternatives", "16"], "--alternatives: alternatives must be from 0 to 15"),
        (["--include", "xyzzy"], "the model does not know the word 'xyzzy'"),
        (["--head", "0"], "attention_head is for models with several heads; this one's attention has one"),
        (["--include", "a,b", "--include", "c d e"], "--include: include takes at most 4 words, got 5"),
        (["--length-normalization", "nan"], "--length-normalization: "),
        (["--attention-size", "0x3"], "--attention-size: "),
        (["--server", "localhost:1", "--device", "cpu"], "--device cannot be used with --server"),
        (["--server", "localhost:1", "--model", "./x"], "--model: ./x is a path; a server is asked"),
        (["--server", "localhost:1", "--token-file", "missing"], "--token-file: missing: No such file"),
        (["--server", "http://localhost:1"], "a server's address is HOST:PORT, got 'http://localhost:1'"),
        (["--server", f"localhost:{'1' * 5000}"], "a server's address is HOST:PORT, got 'localhost:1"),
        (["--server", "a..b:50051"], "no host can have the name 'a..b': parts between dots have 1 to 63 "),
        (["--tls"], "--tls needs --server"),
        (["--timeout-s", "0"], "--timeout-s needs --server"),
        (["--root-certificates", "missing"], "--root-certificates needs --server"),
        (["--token-file", "missing"], "--token-file needs --server"),
        (["--model", "missing"], "there is no model missing; installed are default"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, capsys) -> None:
    assert main(["caption", PHOTOS[0], *arguments]) == 2
    output, errors = capsys.readouterr()
    assert output == "" and errors.startswith(f"captioner: {message}") and errors.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--include", " "], "one or more words"), (["--beam", "1_0"], "a whole number")],
)
def test_the_value_of_an_option_is_in_its_notation(arguments: list[str], expected: str, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["caption", PHOTOS[0], *arguments])
    assert f"argument {arguments[0]}: expected {expected}, got {arguments[1]!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["--attention-size", "x"], ["--threads", "0"], ["--json", "--show"]]
)
def test_what_argparse_refuses(arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["caption", *(arguments and [PHOTOS[0], *arguments])])
    assert raised.value.code == 2 and "usage:" in capsys.readouterr().err


def test_alternatives_stand_below_the_caption_and_do_not_change_it(caption, captioner, capsys) -> None:
    assert caption(*PHOTOS[:2]) == 0
    best = capsys.readouterr().out.splitlines()
    assert caption("--alternatives", "7", *PHOTOS[:2]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("\t")] == best
    assert len(lines) == 16 and lines.index(best[1]) == 8
    asked = CaptionOptions(beam_size=2, alternatives=7)
    [found] = captioner.caption(PHOTOS[:1], asked)
    assert found.text == captioner.caption(PHOTOS[:1], CaptionOptions(beam_size=2))[0].text
    assert len(found.alternatives) == 7


def test_a_caption_holds_the_words_to_include(caption, captioner, capsys) -> None:
    words = sorted(captioner.bundle.vocabulary.words[4:])[:2]
    assert caption("--include", words[0], "--include", words[1].upper(), *PHOTOS) == 0
    for line in capsys.readouterr().out.splitlines():
        assert set(words) <= set(line.split("\t")[1].split())


@pytest.mark.parametrize(
    ("gpu", "says"), [(True, "captioner: running on cpu (CPUExecutionProvider, float32)\n"), (False, "")]
)
def test_running_on_the_cpu_is_said_where_a_gpu_is(gpu, says, tiny_bundle, capsys, monkeypatch) -> None:
    monkeypatch.setattr("captioner.cli.arguments.model._has_gpu", lambda: gpu)
    monkeypatch.setattr("captioner.model.runtime.Runtime._why_no_cuda", lambda *_: "there is none")
    assert main(["caption", "--model", str(tiny_bundle), PHOTOS[0]]) == 0
    assert capsys.readouterr().err == says


def test_a_caption_holds_the_photos_own_keywords(caption, captioner, capsys, tmp_path) -> None:
    one, two = sorted(captioner.bundle.vocabulary.words[4:])[:2]
    tagged, other = tmp_path / "tagged.jpg", tmp_path / "other.jpg"
    tagged.write_bytes(photo_with(one.upper(), "Golden Gate", "xyzzy"))
    other.write_bytes(photo_with("xyzzy", two))
    gone = tmp_path / "gone.jpg"
    assert caption("--include-keywords", str(tagged), str(gone), str(other), PHOTOS[0]) == 1
    output, errors = capsys.readouterr()
    lines = [line.split("\t")[1] for line in output.splitlines()]
    assert one in lines[0].split() and two in lines[1].split()
    assert lines[2] == captioner.caption(PHOTOS[0]).text
    assert "gone.jpg: No such file" in errors
    assert "keywords that the model does not know: xyzzy (2), golden gate (1)" in errors
    assert caption("--include-keywords", "--quiet", str(other)) == 0
    assert capsys.readouterr().err == ""
    assert main(["caption", "--include-keywords", "--server", "localhost:1", str(other)]) == 2


def test_no_more_keywords_than_a_search_can_include(caption, captioner, capsys, tmp_path) -> None:
    words = sorted(captioner.bundle.vocabulary.words[4:])[:6]
    tagged = tmp_path / "tagged.jpg"
    tagged.write_bytes(photo_with(*words))
    for beam, included in (("1", 4), ("16", 2)):
        assert caption("--include-keywords", "--beam", beam, "--max-words", "20", str(tagged)) == 0
        said = capsys.readouterr().out.split("\t")[1].split()
        assert set(words[:included]) <= set(said)
