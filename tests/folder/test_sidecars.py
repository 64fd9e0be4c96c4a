"""Files beside photos and metadata in them: which belongs to whom, and what is left alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from support.patience import PATIENCE_S, wait_until
from support.serving import make_image

from captioner.cli.main import main
from captioner.errors import OptionsError
from captioner.folder.outputs import OutputOptions, make_output
from captioner.folder.outputs.xmp.exiftool import ExifTool, ExifToolError
from captioner.folder.outputs.xmp.tags import DESCRIPTION

needs_exiftool = pytest.mark.skipif(shutil.which("exiftool") is None, reason="needs the program exiftool")


def read_description(path: Path) -> str | None:
    done = subprocess.run(
        ["exiftool", "-j", "-n", "-XMP-dc:Description", path], capture_output=True, check=True
    )
    description: str | None = json.loads(done.stdout)[0].get("Description")
    return description


def test_a_name_cannot_lead_out_of_the_tree(few, tmp_path, batch, capsys) -> None:
    listed = tmp_path / "list"
    listed.write_text("../outside.png\na.jpg\n")
    (tmp_path / "outside.png").write_bytes(make_image(1))
    for _ in range(2):
        assert batch(few, "--files-from", listed, "-o", tmp_path / "tree", "--format", "txt") == 1
        assert (tmp_path / "tree" / "a.txt").is_file() and not (tmp_path / "outside.txt").exists()
    assert capsys.readouterr().err.count("would be outside of") == 2


def test_a_photo_that_was_converted_keeps_its_file(tmp_path, batch) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    (root / "a.png").write_bytes(make_image(1))
    (root / "b.png").write_bytes(make_image(2))
    assert batch(root, "-o", root, "--format", "txt") == 0
    (root / "b.txt").write_text("corrected by hand")
    for name in "ab":
        Image.open(root / f"{name}.png").rotate(90).save(root / f"{name}.jpg")
        (root / f"{name}.png").unlink()
    assert batch(root, "-o", root, "--format", "txt", "--prefix", "now ") == 0
    assert sorted(path.name for path in root.glob("[!.]*")) == ["a.jpg", "a.txt", "b.jpg", "b.txt"]
    assert (root / "a.txt").read_text().startswith("now ")
    assert (root / "b.txt").read_text() == "corrected by hand"


def test_no_two_photos_share_a_file(tmp_path, batch) -> None:
    root, out = tmp_path / "photos", tmp_path / "out"
    root.mkdir()
    for number, names in enumerate((["a.png.jpg", "a.jpg"], ["a.png"])):
        for name in names:
            (root / name).write_bytes(make_image(number))
        assert batch(root, "-o", out, "--format", "txt", "--template", "{name}") == 0
    texts = {path.name: path.read_text().strip() for path in out.glob("*.txt")}
    assert texts == {"a.txt": "a.jpg", "a.png.txt": "a.png.jpg", "a.png.2.txt": "a.png"}


@pytest.mark.skipif(os.name != "posix", reason="names of 255 bytes")
def test_a_file_that_cannot_be_is_one_failure(tmp_path, batch, capsys) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    long = "x" * 251
    for name in (f"{long}.png", "ok.png"):
        (root / name).write_bytes(make_image(len(name)))
    assert batch(root, "-o", tmp_path / "out", "--format", "caption") == 1
    assert "File name too long" in capsys.readouterr().err
    assert (tmp_path / "out" / "ok.caption").is_file()


@needs_exiftool
def test_embedding_leaves_links_links(few, batch) -> None:
    (few / "link.jpg").symlink_to(Path("b", "c.jpg"))
    for _ in range(2):
        assert batch(few, "-o", few, "--format", "xmp", "--embed") == 0
        assert (few / "link.jpg").is_symlink()
        assert read_description(few / "b" / "c.jpg")


@needs_exiftool
def test_embedding_after_exiftool_was_killed(few, batch) -> None:
    (few / "a.jpg_exiftool_tmp").write_bytes(b"half a photo")
    assert batch(few, "-o", few, "--format", "xmp", "--embed") == 0
    assert read_description(few / "a.jpg")


@needs_exiftool
@pytest.mark.parametrize("flags", [("--format", "txt"), ("--format", "xmp"), ("--format", "xmp", "--embed")])
def test_what_a_killed_run_left_beside_photos_goes(few, batch, flags) -> None:
    for _ in range(2):  # also where nothing is written
        left = [folder / f".captioner-{'0' * 16}.partial" for folder in (few, few / "b")]
        for path in left:
            path.write_bytes(b"half of a photo")
        assert batch(few, "-o", few, *flags) == 0
        assert not any(path.exists() for path in left)


def test_a_photo_that_vanishes_is_not_made_up(few, batch, monkeypatch, capsys) -> None:
    from captioner.folder.state import State

    original = State.save

    def save(self, *arguments, **keywords):
        original(self, *arguments, **keywords)
        (few / "a.jpg").unlink(missing_ok=True)

    monkeypatch.setattr(State, "save", save)
    assert batch(few, "-o", few, "--format", "xmp", "--embed") == 1
    assert "a.jpg: cannot write a.jpg: the photo is gone" in capsys.readouterr().err
    assert not (few / "a.jpg").exists()


@needs_exiftool
def test_a_caption_that_is_taken_back_leaves_the_metadata(few, tmp_path, batch, monkeypatch) -> None:
    from captioner.folder.text import TextOptions

    assert batch(few, "-o", few, "--format", "xmp", "--embed") == 0
    subprocess.run(
        ["exiftool", "-q", "-overwrite_original", "-XMP-dc:Description=by hand", few / "b" / "c.jpg"],
        check=True,
    )
    error = {"code": "low_confidence", "message": "not believed"}
    monkeypatch.setattr(
        TextOptions, "transform", lambda _, record: {"image": record["image"], "error": error}
    )
    assert batch(few, "-o", few, "--format", "xmp", "--embed", "--capitalize") == 0
    assert read_description(few / "a.jpg") is None
    assert read_description(few / "b" / "c.jpg") == "by hand"


@needs_exiftool
def test_a_sidecar_in_which_nothing_is_left_goes(few, tmp_path, batch) -> None:
    flags = (few, "-o", few, "--format", "xmp")
    alone, shared = few / "a.jpg.xmp", few / "b" / "c.jpg.xmp"
    corrections = tmp_path / "corrections.jsonl"
    lines = [{"image": name, "caption": "", "status": "rejected"} for name in ("a.jpg", "b/c.jpg")]
    corrections.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    assert batch(*flags) == 0
    subprocess.run(["exiftool", "-q", "-overwrite_original", "-XMP-xmp:Rating=3", shared], check=True)
    assert batch(*flags, "--corrections", corrections) == 0
    assert not alone.exists() and b"Rating>3<" in shared.read_bytes() and read_description(shared) is None
    assert batch(*flags) == 0
    assert read_description(alone) and read_description(shared)


@needs_exiftool
def test_exiftool_starts_beside_other_threads() -> None:
    """A fork that runs Python before exec may wait for a lock that a thread held: here, for this hook."""
    program = """
import os, time
os.register_at_fork(after_in_child=lambda: time.sleep(600))
from captioner.folder.outputs.xmp.exiftool import ExifTool
tool = ExifTool()
assert b"a dog" in tool.set_tags(None, ".xmp", {"XMP-dc:Description": "a dog"})
tool.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_S)


@needs_exiftool
def test_joiners_of_a_script_are_written_and_control_characters_are_not() -> None:
    tool = ExifTool()
    content = tool.set_tags(None, ".xmp", {DESCRIPTION: "سگ می\u200cدود\x1b\u202e a\u200db"})
    assert tool.get_tags(content, ".xmp", [DESCRIPTION])[DESCRIPTION] == "سگ می\u200cدود a b"
    tool.close()


@needs_exiftool
def test_exiftool_is_started_again_and_says_what_failed(monkeypatch) -> None:
    tool = ExifTool()
    content = tool.set_tags(None, ".xmp", {DESCRIPTION: "a dog"})
    assert tool._process is not None
    tool._process.kill()
    tool._process.wait()
    assert tool.get_tags(content, ".xmp", [DESCRIPTION])[DESCRIPTION] == "a dog"
    tool._process.kill()
    tool._process.wait()
    with monkeypatch.context() as patch, pytest.raises(ExifToolError, match="has ended"):
        patch.setattr(tool._process, "poll", lambda: None)  # it ends behind our back
        tool.get_tags(content, ".xmp", [DESCRIPTION])
    with pytest.raises(ExifToolError, match="Error"):
        tool.set_tags(b"no photo", ".jpg", {DESCRIPTION: "a dog"})
    assert tool.get_tags(content, ".xmp", [DESCRIPTION])[DESCRIPTION] == "a dog"
    tool.close()


@needs_exiftool
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs Linux")
def test_exiftool_ends_with_the_program_that_is_killed() -> None:
    program = """
import os, signal
from captioner.folder.outputs.xmp.exiftool import ExifTool
tool = ExifTool()
tool.set_tags(None, ".xmp", {"XMP-dc:Description": "a dog"})
print(tool._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    wait_until(lambda: not _is_running(int(done.stdout)))


def _is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("flag", ["--embed", "--hierarchy"])
def test_what_is_for_xmp_is_refused_elsewhere(few, tmp_path, batch, capsys, flag) -> None:
    for output in (("-o", few, "--format", "txt"), ("-o", tmp_path / "out.jsonl")):
        assert batch(few, *output, flag) == 2
        assert f"captioner: {flag} is for xmp\n" in capsys.readouterr().err


def test_a_hierarchy_is_one_of_keywords(few, batch, capsys) -> None:
    assert batch(few, "-o", few, "--format", "xmp", "--hierarchy") == 2
    assert "captioner: --hierarchy needs --keywords\n" in capsys.readouterr().err


def test_embedding_is_for_the_one_folder_of_the_photos(few, batch, capsys) -> None:
    for sources in ((few / "b",), (few, few / "b")):
        assert batch(*sources, "-o", few, "--format", "xmp", "--embed") == 2
        assert "give their folder as OUT" in capsys.readouterr().err
    with pytest.raises(OptionsError):
        make_output(few, OutputOptions(embed=True), "xmp")


@needs_exiftool
@pytest.mark.parametrize("flags", [("txt",), ("xmp",), ("xmp", "--embed"), ("jsonl,txt,xmp",)])
def test_what_was_written_for_a_photo_is_ours_where_it_is_moved(few, batch, capsys, flags) -> None:
    run = (few, "-o", few, "--format", *flags)
    assert batch(*run) == 0
    for path in (few / "b").glob("c.*"):  # the photo and the files beside it
        path.rename(few / f"moved {path.name}")
    assert batch(*run, "--prefix", "now ") == 0
    assert "kept" not in capsys.readouterr().err
    if "--embed" in flags:
        assert (read_description(few / "moved c.jpg") or "").startswith("now ")
    elif "xmp" in flags:
        assert (read_description(few / "moved c.jpg.xmp") or "").startswith("now ")
    else:
        assert (few / "moved c.txt").read_text().startswith("now ")


def test_what_somebody_edited_is_kept_where_it_is_moved(few, batch, capsys) -> None:
    assert batch(few, "-o", few, "--format", "txt") == 0
    (few / "b" / "c.txt").write_text("corrected by hand")
    (few / "b").rename(few / "moved")
    assert batch(few, "-o", few, "--format", "txt", "--prefix", "now ") == 0
    assert "1 kept as it was" in capsys.readouterr().err
    assert (few / "moved" / "c.txt").read_text() == "corrected by hand"


def test_a_photo_of_another_suffix_takes_its_file_along(few, batch) -> None:
    assert batch(few, "-o", few, "--format", "txt") == 0
    (few / "a.jpg").rename(few / "a.JPEG")
    assert batch(few, "-o", few, "--format", "txt", "--prefix", "now ") == 0
    assert [path.name for path in few.glob("a*.txt")] == ["a.txt"]
    assert (few / "a.txt").read_text().startswith("now ")


def test_what_somebody_edited_is_kept_and_counted(few, batch, capsys) -> None:
    assert batch(few, "-o", few, "--format", "txt") == 0
    assert "kept" not in capsys.readouterr().err
    (few / "a.txt").write_text("corrected by hand")
    for flags in ((), ("--prefix", "now ")):
        assert batch(few, "-o", few, "--format", "txt", *flags) == 0
        assert "1 kept as it was" in capsys.readouterr().err
    assert (few / "a.txt").read_text() == "corrected by hand"
    assert batch(few, "-o", few, "--format", "txt", "--replace-existing") == 0
    assert "kept" not in capsys.readouterr().err and (few / "a.txt").read_text() != "corrected by hand"


@needs_exiftool
@pytest.mark.parametrize("embed", [False, True])
def test_descriptions_of_other_programs_are_kept_and_counted_each_time(few, batch, capsys, embed) -> None:
    file = few / ("a.jpg" if embed else "a.jpg.xmp")
    command = ["exiftool", "-q", "-overwrite_original", "-XMP-dc:Description=by hand"]
    subprocess.run([*command, file], check=True)
    flags = ["--format", "xmp", *(["--embed"] if embed else [])]
    for _ in range(3):
        assert batch(few, "-o", few, *flags) == 0
        assert "1 kept as it was" in capsys.readouterr().err
    assert read_description(file) == "by hand"
    assert batch(few, "-o", few, *flags, "--replace-existing", "--overwrite") == 0
    assert "kept" not in capsys.readouterr().err
    assert read_description(file) != "by hand"


@needs_exiftool
def test_names_with_line_breaks_have_metadata_too(tmp_path, batch) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    names = ("a\nb.jpg", "a\r\\nb.jpg", "#[CSTR]x.jpg", "-x.jpg", " y .jpg")
    for number, name in enumerate(names):
        (root / name).write_bytes(make_image(number, format="JPEG"))
    assert batch(root, "-o", root, "--format", "xmp") == 0
    assert all(read_description(root / f"{name}.xmp") for name in names)


@needs_exiftool
def test_a_name_cannot_forge_the_answer_of_exiftool(tmp_path, batch, capsys) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    names = (
        "a.bmp\n-echo4\n{status 0}\n-execute\nb.jpg",
        "c\n{ready}\n.jpg",
        "d\n{status 1}\n.jpg",
        "e$&@\n.jpg",
    )
    for number, name in enumerate(names):
        (root / name).write_bytes(make_image(number, format="JPEG"))
    (root / "f\n{status 0}.bmp").write_bytes(make_image(9, format="BMP"))
    assert batch(root, "-o", root, "--format", "xmp", "--embed") == 1
    assert all(read_description(root / name) for name in names)
    error = capsys.readouterr().err
    assert error.count("cannot write") == 1 and r"f\n{status 0}.bmp: cannot write" in error


@needs_exiftool
def test_keywords_of_a_caption_go_with_it(few, tmp_path, batch) -> None:
    def tags(name: str) -> dict[str, object]:
        done = subprocess.run(["exiftool", "-j", "-n", few / name], capture_output=True, check=True)
        found: dict[str, object] = json.loads(done.stdout)[0]
        return found

    def correct(status: str) -> None:
        lines = [
            {"image": name, "caption": "a red kite over a hill", "status": status}
            for name in ("a.jpg", "b/c.jpg")
        ]
        corrections.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        assert batch(*flags, "--corrections", corrections) == 0

    corrections = tmp_path / "corrections.jsonl"
    flags = (few, "-o", few, "--format", "xmp", "--embed", "--keywords")
    assert batch(*flags) == 0
    subprocess.run(
        ["exiftool", "-q", "-overwrite_original", "-XMP-dc:Subject=mine", few / "b" / "c.jpg"], check=True
    )
    correct("edited")
    assert tags("a.jpg")["Subject"] == ["kite", "hill"] and tags("b/c.jpg")["Subject"] == "mine"
    correct("rejected")
    assert "Subject" not in tags("a.jpg") and "Description" not in tags("a.jpg")
    assert tags("b/c.jpg")["Subject"] == "mine"


@pytest.mark.parametrize("status", ["edited", "approved"])
def test_a_corrected_caption_that_cannot_be_written_is_a_failure(
    few, tmp_path, batch, capsys, status
) -> None:
    corrections, out = tmp_path / "corrections.jsonl", tmp_path / "out"
    corrections.write_text(json.dumps({"image": "a.jpg", "caption": "a dog", "status": status}))
    (out / "a.txt").mkdir(parents=True)
    flags = ("-o", out, "--format", "txt", "--corrections", corrections)
    for _ in range(2):
        assert batch(few, *flags) == 1
        assert "a.jpg: cannot write" in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == ["a.txt", "b"]
    (out / "a.txt").rmdir()
    assert batch(few, *flags) == 0
    assert (out / "a.txt").read_text() == "a dog\n"


def test_a_caption_that_was_approved_as_shown_keeps_the_models_fields(few, tmp_path, batch) -> None:
    corrections, out = tmp_path / "corrections.jsonl", tmp_path / "out.jsonl"
    flags = ("-o", out, "--attention", "--sentence")
    assert batch(few, *flags) == 0
    before = out.read_text()
    shown = json.loads(before.splitlines()[0])
    corrections.write_text(
        json.dumps({"image": shown["image"], "caption": shown["caption"], "status": "approved"})
    )
    assert batch(few, *flags, "--corrections", corrections) == 0
    assert out.read_text() == before


@needs_exiftool
def test_an_interrupt_from_the_keyboard_leaves_exiftool_alone() -> None:
    tool = ExifTool()
    tool.set_tags(None, ".xmp", {DESCRIPTION: "a dog"})
    assert tool._process is not None
    assert os.getpgid(tool._process.pid) != os.getpgrp()
    tool.close()


def test_names_that_have_no_place_in_the_folder_are_refused_before_the_work(
    few, tmp_path, batch, capsys, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    assert batch(few, few / "b", "-o", out, "--format", "txt") == 2
    error = capsys.readouterr().err
    assert "the files of all images would be outside of" in error and "name one folder alone" in error
    assert batch("few", "few/b", "-o", out, "--format", "txt") == 0
    assert (out / "few" / "a.txt").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--replace-existing",), "--replace-existing is for txt, caption, xmp"),
        (("--actors", "4"), "--actors needs --engine ray"),
        (("--gpus-per-actor", "1"), "--gpus-per-actor needs --engine ray"),
        (("-0",), "-0 needs --files-from"),
        (("--server", "localhost:1", "--workers", "3"), "--workers cannot be used with --server"),
        (("--server", "localhost:1", "--batch-size", "3"), "--batch-size cannot be used with --server"),
    ],
)
def test_flags_without_effect_are_refused(few, tmp_path, capsys, flags, message) -> None:
    assert main(["batch", str(few), "-o", str(tmp_path / "out.jsonl"), *flags]) == 2
    assert message in capsys.readouterr().err
