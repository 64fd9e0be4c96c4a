"""The files of a gallery: what is written, and what is replaced."""

import errno
import json
from pathlib import Path

import pytest
from PIL import Image
from support.captions import make_caption

from captioner.cli.main import main
from captioner.errors import OptionsError, OutputError
from captioner.overlay.gallery import GalleryOptions, write_gallery
from captioner.results import Caption


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../outside.jpg", "the photo is outside the folder of images"),
        ("/etc/hostname", "the photo is outside the folder of images"),
        (".", "the photo is outside the folder of images"),
        ("missing.jpg", None),
        ("nul\0.jpg", None),
    ],
)
def test_what_cannot_be_shown_is_a_failed_card(tmp_path, photo, name, reason):
    photo.save(tmp_path / "outside.jpg")
    (tmp_path / "root").mkdir()
    summary = write_gallery([make_caption().to_dict(name)], tmp_path / "out.html", tmp_path / "root")
    assert summary.failed == 1
    assert reason is None or reason in (tmp_path / "out.files" / "index" / "0.js").read_text()


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"image": "0.jpg", "log_prob": -1},
        {"image": "0.jpg", "caption": "x", "log_prob": "y"},
        {"image": "0.jpg", "caption": "x", "log_prob": -1, "words": [3]},
        {
            "image": "0.jpg",
            "caption": "x",
            "log_prob": -1,
            "words": [{"text": "x", "log_prob": -1, "attention": [[1], [1, 2]]}],
        },
        {
            "image": "0.jpg",
            "caption": "x",
            "log_prob": -1,
            "words": [{"text": "x", "log_prob": -1, "attention": [[-1]]}],
        },
        {
            "image": "0.jpg",
            "caption": "x",
            "log_prob": -1,
            "words": [{"text": "x", "log_prob": -1, "attention": [[1] * 100_000]}],
        },
        {
            "image": "0.jpg",
            "caption": "x",
            "log_prob": -1,
            "words": [{"text": "x", "log_prob": -1, "attention": [[1e300]]}],
        },
        {"image": "0.jpg", "error": None},
    ],
)
@pytest.mark.filterwarnings("error")
def test_malformed_records_are_failed_cards(tmp_path, folder, record):
    summary = write_gallery([record], tmp_path / "out.html", folder)
    assert (summary.photos, summary.failed) == (1, 1)


def test_a_caption_that_a_person_wrote_has_no_numbers(tmp_path, folder):
    summary = write_gallery([{"image": "0.jpg", "caption": "a dog"}], tmp_path / "out.html", folder)
    assert (summary.photos, summary.failed) == (1, 0)
    assert '["0.jpg","a dog",null,null,null,null]' in (tmp_path / "out.files" / "index" / "0.js").read_text()
    view = (tmp_path / "out.files" / "views" / "0.js").read_text()
    assert '"logProb":null' in view and '"meanProbability":null' in view


def test_a_gallery_replaces_itself_and_nothing_else(tmp_path, folder, records):
    page = tmp_path / "out.html"
    write_gallery(records, page, folder)
    write_gallery(records[:1], page, folder)
    assert len(list((tmp_path / "out.files" / "views").iterdir())) == 1
    (tmp_path / "precious.files").mkdir()
    with pytest.raises(OptionsError, match="not of a gallery"):
        write_gallery(records, tmp_path / "precious.html", folder)
    with pytest.raises(OutputError, match="cannot write"):
        write_gallery(records, page / "below-a-file.html", folder)
    own, link = tmp_path / "own.html", tmp_path / "link.html"
    own.write_text("precious")
    link.symlink_to(own)
    for path in (own, link):
        with pytest.raises(OptionsError, match="no earlier run of this command wrote it; --overwrite repl"):
            write_gallery(records, path, folder)
        assert own.read_text() == "precious"
    write_gallery(records, own, folder, GalleryOptions(overwrite=True))
    write_gallery(records, own, folder)
    (tmp_path / "empty.html").touch()  # as a program that asks for a name leaves it
    write_gallery(records, tmp_path / "empty.html", folder)


def test_a_page_that_no_gallery_wrote_is_kept(tmp_path, tiny_bundle, capsys):
    few = tmp_path / "photos"
    few.mkdir()
    Image.new("RGB", (40, 30), "teal").save(few / "0.png")
    page, model = tmp_path / "page.html", ["--model", str(tiny_bundle), "--device", "cpu", "-q"]
    page.write_text("precious")
    commands = (
        ["gallery", str(few), "-o", str(page), *model],
        ["batch", str(few), "-o", str(tmp_path / "o.jsonl"), "--attention", "--gallery", str(page), *model],
    )
    for command in commands:
        assert main(command) == 2
        assert f"{page} is there already, and no earlier run" in capsys.readouterr().err
        assert page.read_text() == "precious"
        assert main([*command, "--overwrite"]) == 0
        page.with_suffix(".files").rename(tmp_path / command[0])
        page.write_text("precious")


def test_copies_of_photos_carry_no_metadata(tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "a secret place"
    Image.new("RGB", (40, 30)).save(tmp_path / "0.jpg", exif=exif)
    write_gallery([Caption("x", -1.0).to_dict("0.jpg")], tmp_path / "out.html", tmp_path)
    for copy in (tmp_path / "out.files").rglob("*.jpg"):
        assert b"secret" not in copy.read_bytes()


def test_what_a_killed_run_left_goes_and_the_gallery_that_it_took_away_is_put_back(tmp_path, folder, records):
    pages = [tmp_path / name for name in ("a.html", "b.html")]
    for page in pages:
        write_gallery(records, page, folder)
    index = tmp_path / "b.files" / "index" / "0.js"
    before = index.read_text()
    killed = tmp_path / f".captioner-{'0' * 16}"
    (killed / "new" / "photos").mkdir(parents=True)
    (tmp_path / "b.files").rename(killed / "old")
    write_gallery(records[:1], pages[0], folder)
    assert index.read_text() == before
    assert {path.name for path in tmp_path.iterdir() if path.name[0] in ".ab"} == {
        f"{name}.{end}" for name in "ab" for end in ("html", "files")
    }


def test_an_interrupted_gallery_leaves_nothing_and_replaces_nothing(tmp_path, folder, records):
    def interrupted():
        yield records[0]
        raise KeyboardInterrupt

    page = tmp_path / "out.html"
    with pytest.raises(KeyboardInterrupt):
        write_gallery(interrupted(), page, folder)
    assert list(tmp_path.iterdir()) == []
    write_gallery(records, page, folder)
    with pytest.raises(KeyboardInterrupt):
        write_gallery(interrupted(), page, folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.files", "out.html"]
    assert len(list((tmp_path / "out.files" / "views").iterdir())) == 4


@pytest.mark.parametrize("failing", ["sync_folder", "replacing"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_gallery_that_cannot_be_replaced_stays(tmp_path, folder, records, monkeypatch, failing, error):
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def fail(*_: object) -> None:
        raise error

    page = tmp_path / "out.html"
    write_gallery(records, page, folder)
    before = content()
    with monkeypatch.context() as patch:
        patch.setattr(f"captioner.overlay.gallery.write.{failing}", fail)
        with pytest.raises(OptionsError if error is OSError else error):
            write_gallery(records[:1], page, folder)
    assert content() == before
    rename = Path.rename

    def fail_with_the_new_one(self: Path, target: Path) -> Path:
        if self.name == "new" and target.name == "out.files":
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_with_the_new_one)
    with pytest.raises(OptionsError if error is OSError else error):
        write_gallery(records[:1], page, folder)
    assert content() == before


@pytest.mark.parametrize("failing", ["sync_folder", "replacing"])
def test_a_gallery_that_cannot_be_made_leaves_nothing(tmp_path, folder, records, monkeypatch, failing):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    page = tmp_path / "gallery" / "out.html"
    monkeypatch.setattr(f"captioner.overlay.gallery.write.{failing}", fail)
    with pytest.raises(OptionsError, match="No space left"):
        write_gallery(records, page, folder)
    assert not list(tmp_path.glob("gallery*"))


def test_decisions_name_the_file_as_it_is(tmp_path, photo):
    name = "Screenshot at 10.00.00\u202fAM.jpg"
    photo.save(tmp_path / name)
    write_gallery([{"image": name, "caption": "a dog", "log_prob": -1.0}], tmp_path / "page.html", tmp_path)
    index = (tmp_path / "page.files" / "index" / "0.js").read_text()
    [row] = json.loads(index[index.index("[[") : index.rindex("]]") + 2])
    assert row[0] == name.replace("\u202f", " ") and row[-1] == name


def test_the_folder_of_another_page_is_not_replaced(tmp_path, folder, records):
    write_gallery(records, tmp_path / "site.html", folder)
    with pytest.raises(OptionsError, match=r"site.files belongs to the gallery site.html"):
        write_gallery(records, tmp_path / "site.htm", folder)
    write_gallery(records, tmp_path / "site.html", folder)
