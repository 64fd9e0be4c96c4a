"""`captioner overlay` and `captioner gallery` as a user calls them, on a real bundle and a real server."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image, ImageChops
from support.captions import make_caption
from support.disks import filled
from support.serving import RunningServer

from captioner.captioner import Captioner
from captioner.cli.commands.overlay import parse_words
from captioner.cli.main import main
from captioner.overlay.styles import STYLES
from captioner_server.options import ServerOptions

EXAMPLES = Path(__file__).parents[2] / "examples"
CAT = str(EXAMPLES / "cat.jpg")


@pytest.fixture
def run(tiny_bundle: Path):
    """Runs a command in this process with the tiny model; returns its exit status."""
    return lambda *arguments: main([*map(str, arguments), "--model", str(tiny_bundle), "--device", "cpu"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    (root / "more").mkdir(parents=True)
    for name in ("cat.jpg", "coffee.jpg"):
        shutil.copy(EXAMPLES / name, root / "more" / name)
    (root / "broken.png").write_bytes(b"not an image")
    (root / ".hidden.jpg").write_bytes(b"")
    return root


@pytest.mark.parametrize(
    ("suffix", "format"), [(".png", "PNG"), (".gif", "GIF"), (".webp", "WEBP"), (".PNG", "PNG")]
)
def test_the_suffix_says_what_is_drawn(run, capsys, tmp_path, suffix, format):
    out = tmp_path / f"out{suffix}"
    assert run("overlay", CAT, "-o", out, "--width", 300) == 0
    with Image.open(out) as picture:
        assert (picture.format, picture.width) == (format, 300)
    name, _, caption = capsys.readouterr().out.strip().partition("\t")
    assert name == CAT
    assert caption


@pytest.mark.parametrize("out", ["photo.png", "./photo.png", "{stem}.png"])
def test_a_photo_is_not_overwritten_by_its_overlay(run, capsys, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    with Image.open(CAT) as photo:
        photo.save("photo.png")
    before = Path("photo.png").read_bytes()
    assert run("overlay", "photo.png", "-o", out) == 1
    assert "photo.png is one of the inputs; choose another name for OUT" in capsys.readouterr().err
    assert Path("photo.png").read_bytes() == before


def test_another_photo_is_not_overwritten_either(run, capsys, tmp_path):
    with Image.open(CAT) as photo:
        photo.save(tmp_path / "a.png")
        photo.save(tmp_path / "a.jpg")
    before = (tmp_path / "a.png").read_bytes()
    assert run("overlay", tmp_path / "a.jpg", tmp_path / "a.png", "-o", tmp_path / "{stem}.png") == 1
    assert capsys.readouterr().err.count("is one of the inputs") == 2
    assert (tmp_path / "a.png").read_bytes() == before
    assert run("overlay", tmp_path, "--recursive", "-o", tmp_path / "{stem}.png") == 1
    assert capsys.readouterr().err.count("is one of the inputs") == 2
    assert (tmp_path / "a.png").read_bytes() == before


def test_a_page_has_the_words_and_alternatives(run, tmp_path):
    out = tmp_path / "out.html"
    assert run("overlay", CAT, "-o", out, "--max-words", 6, "--style", "spotlight") == 0
    page = out.read_text(encoding="utf-8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert len(data["alternatives"]) == 2
    assert data["mode"] == "spotlight"
    assert 0 < len(data["words"]) <= 6


def test_the_photo_may_come_from_standard_input(run, tmp_path, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(Path(CAT).read_bytes()))
    monkeypatch.setattr("sys.stdin", stream)
    assert run("overlay", "-", "-o", tmp_path / "out.png", "--words", "1") == 0


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        ((CAT, "-o", "out.bmp"), 2, "OUT must end in"),
        ((CAT, "-o", "no/such/folder/out.png"), 2, "there is no folder"),
        ((CAT, "-o", "out.png", "--style", "nice"), 2, "style must be one of"),
        ((CAT, "-o", "out.png", "--style", "alt"), 2, "captioner caption --style alt prints alt text"),
        ((CAT, "-o", "out.gif", "--style", "matrix"), 2, "style must be one of"),
        (
            (CAT, "-o", "out.html", "--style", "contour"),
            2,
            "one of panels, spotlight for pages, got 'contour'",
        ),
        ((CAT, "-o", "out.png", "--colormap", "jet"), 2, "colormap must be one of"),
        ((CAT, "-o", "out.png", "--alpha", "7"), 2, "alpha must be"),
        ((CAT, "-o", "out.png", "--words", "64"), 2, "there is no word 64"),
        ((CAT, "-o", "out.png", "--words", "99"), 2, "there is no word 99: the caption has"),
        ((CAT, "-o", "out.png", "--words", "60-99999999999"), 2, "there is no word 60: the caption has"),
        ((CAT, "-o", "{foo}.png"), 2, "OUT may have {stem} in its name, not {foo}"),
        ((CAT, "-o", "{stem}{}.png"), 2, "OUT may have {stem} in its name, not {}"),
        ((CAT, "-o", "{folder}/{stem}.png"), 2, "OUT may have {stem} in its name, not {folder}"),
        (("missing.jpg", "-o", "out.png"), 1, "missing.jpg"),
        ((__file__, "-o", "out.png"), 1, "not an image"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, capsys, tmp_path, monkeypatch, arguments, status, reason):
    monkeypatch.chdir(tmp_path)
    assert run("overlay", *arguments) == status
    errors = capsys.readouterr().err
    assert reason in errors
    assert len(errors.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif("__import__('os').name != 'posix'", reason="mounts")
def test_a_full_disk_leaves_the_earlier_picture(run, capsys, mount):
    disk = mount("-t", "tmpfs", "-o", "size=8m", "tmpfs")
    pictures = [disk / f"out{suffix}" for suffix in (".png", ".html")]
    for picture in pictures:
        picture.write_bytes(b"earlier")
    with filled(disk, 4096):
        for picture in pictures:
            assert run("overlay", CAT, "-o", picture) == 2
            assert f"cannot write {picture}: No space left on device" in capsys.readouterr().err
    assert [picture.read_bytes() for picture in pictures] == [b"earlier"] * 2
    assert sorted(disk.iterdir()) == sorted(pictures)


def test_a_server_captions_as_well(run, capsys, tmp_path, tiny_bundle):
    server = RunningServer(Captioner.load(tiny_bundle, device="cpu"), ServerOptions(port=0))
    try:
        assert main(["overlay", CAT, "-o", str(tmp_path / "far.png"), "--server", server.address]) == 0
    finally:
        server.close()
    far = capsys.readouterr().out
    assert run("overlay", CAT, "-o", tmp_path / "near.png") == 0
    assert far == capsys.readouterr().out
    with Image.open(tmp_path / "far.png") as one, Image.open(tmp_path / "near.png") as other:
        assert ImageChops.difference(one, other).convert("L").getextrema()[1] <= 2


def test_pixels_are_limited_for_drawing_too(run, capsys, tmp_path, tiny_bundle, folder):
    captions = tmp_path / "captions.jsonl"
    captions.write_text(json.dumps(make_caption().to_dict("more/cat.jpg")), encoding="utf-8")
    server = RunningServer(Captioner.load(tiny_bundle, device="cpu"), ServerOptions(port=0))
    try:
        for name in ("out.png", "out.gif", "out.html"):
            flags = ["-o", str(tmp_path / name), "--server", server.address]
            assert main(["overlay", CAT, *flags, "--max-pixels", "1000"]) == 1
            assert f"{CAT}: " in (error := capsys.readouterr().err) and "max_pixels" in error
            assert not (tmp_path / name).exists()
        assert main(["gallery", str(folder), *flags, "--max-pixels", "1000"]) == 1
        assert main(["caption", CAT, "--server", server.address, "--max-pixels", "1000"]) == 2
    finally:
        server.close()
    assert "more pixels than the limit" in (tmp_path / "out.files" / "index" / "0.js").read_text()
    run("gallery", captions, "-o", tmp_path / "out.html", "--images", folder, "--max-pixels", "1000")
    assert "more pixels than the limit" in (tmp_path / "out.files" / "index" / "0.js").read_text()


def test_the_name_of_a_photo_may_be_that_of_a_folder(run, tmp_path) -> None:
    other = shutil.copy(CAT, tmp_path / "other.jpg")
    dots = shutil.copy(CAT, tmp_path / "...jpg")
    (tmp_path / "{mine}").mkdir()
    for place in ("out/{stem}/{stem}.png", "out/{stem}/view.png", "{mine}/{stem}.png"):
        assert run("overlay", CAT, other, dots, "-o", tmp_path / place) == 0
    made = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png"))
    each = ("cat", "other", "photo")
    of_folders = [f"out/{name}/{file}.png" for name in each for file in sorted((name, "view"))]
    assert made == sorted([*of_folders, *(f"{{mine}}/{name}.png" for name in each)])


def test_the_help_names_every_style(capsys):
    with pytest.raises(SystemExit):
        main(["overlay", "--help"])
    shown = capsys.readouterr().out
    assert all(style in shown for style in STYLES)


def test_words_are_counted_from_one():
    assert parse_words("3,5") == (2, 4)
    assert parse_words("2-4, 9") == (1, 2, 3, 8)
    for wrong in ("0", "x", "", "5-3", "-2", "1,,2"):
        with pytest.raises(Exception, match="does not name words"):
            parse_words(wrong)


def test_a_gallery_of_a_folder(run, capsys, tmp_path, folder):
    out = tmp_path / "out.html"
    assert run("gallery", folder, "-o", out, "--title", "A <b> title") == 1
    output, errors = capsys.readouterr()
    assert output == f"{out}\n", errors
    assert "broken.png: not an image" in errors
    assert "1 of 3 photos failed" in errors
    assert "<title>A &lt;b&gt; title</title>" in out.read_text(encoding="utf-8")
    assert sorted(path.name for path in (tmp_path / "out.files" / "views").iterdir()) == ["1.js", "2.js"]


def test_a_gallery_of_captions_written_before(run, capsys, tmp_path, folder):
    lines = [json.dumps(make_caption().to_dict("more/cat.jpg")), "", '{"image": "cut o']
    captions = tmp_path / "captions.jsonl"
    captions.write_text("\n".join(lines), encoding="utf-8")
    assert run("gallery", captions, "-o", tmp_path / "out.html", "--images", folder) == 1
    index = (tmp_path / "out.files" / "index" / "0.js").read_text()
    assert "a small lit place" in index
    assert "line 3 of captions.jsonl" in index
    errors = capsys.readouterr().err
    assert "captioner: line 3 of captions.jsonl: not a record of a caption\n" in errors
    assert "1 of 2 photos failed" in errors


@pytest.mark.parametrize(
    ("source", "arguments", "reason"),
    [
        ("missing", (), "there is no such folder or file"),
        ("empty", (), "there are no images"),
        ("empty", ("--images", "x"), "--images is for CAPTIONS.jsonl"),
        ("captions.jsonl", ("--images", "nowhere"), "there is no such folder"),
        ("captions.jsonl", ("-o", "out.pdf"), "a gallery is an .html file"),
    ],
)
def test_a_gallery_that_cannot_be_made(run, capsys, tmp_path, monkeypatch, source, arguments, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "captions.jsonl").write_text('{"image": "a.jpg", "caption": "a", "log_prob": -1}\n')
    assert run("gallery", source, "-o", "out.html", *arguments) == 2
    assert reason in capsys.readouterr().err


def test_a_word_that_one_caption_lacks_fails_that_photo_only(run, tmp_path, capsys) -> None:
    shutil.copy(CAT, tmp_path / "a.jpg")
    (tmp_path / "b.jpg").write_bytes(b"")
    names = (tmp_path / "a.jpg", tmp_path / "b.jpg", CAT)
    assert run("overlay", *names, "-o", tmp_path / "{stem}.png", "--words", "64") == 1
    errors = capsys.readouterr().err.splitlines()
    assert [error.partition(": there is no word 64")[1] != "" for error in errors] == [True, False, True]
    recursive = ("overlay", tmp_path, "--recursive", "-o", tmp_path / "{stem}.png", "--words", "64")
    assert run(*recursive) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_name_that_is_too_long_for_its_overlay_fails_that_photo_only(run, tmp_path, capsys) -> None:
    for name in (f"{'x' * 250}.jpg", "b.jpg", "c.jpg"):
        shutil.copy(CAT, tmp_path / name)
    (tmp_path / "b-map.png").mkdir()
    assert run("overlay", tmp_path, "--recursive", "-o", tmp_path / "{stem}-map.png", "--width", 200) == 1
    assert (tmp_path / "c-map.png").is_file()
    errors = capsys.readouterr().err.splitlines()
    assert ["it is a folder" in error for error in errors] == [True, False]
    assert "File name too long" in errors[1]


def test_an_output_that_cannot_be_written_is_a_fault_of_the_command(run, tmp_path, capsys) -> None:
    (tmp_path / "map.png").mkdir()
    for name, reason in (("map.png", "it is a folder"), (f"{'x' * 300}.png", "File name too long")):
        assert run("overlay", CAT, "-o", tmp_path / name, "--width", 200) == 2
        assert capsys.readouterr().err == f"captioner: cannot write {tmp_path / name}: {reason}\n"
