"""What is found in folders, lists and archives, and what is not."""

from __future__ import annotations

import base64
import io
import json
import os
import zipfile
from pathlib import Path

import pytest
from support.serving import make_image

from captioner.errors import ImageTooLargeError, ImageUnreadableError, OutputError
from captioner.folder.api import iter_folder
from captioner.folder.outputs.place import check_no_input
from captioner.folder.sources.files import FolderSource, read_names
from captioner.folder.sources.open import open_sources
from captioner.folder.sources.selection import Selection


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name in ("a.jpg", "b/a.jpg", "b/c/d.PNG", ".hidden.jpg", ".cache/e.jpg", "notes.txt", "thumbs/f.jpg"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_image(len(name)))
    return root


def names_of(source: FolderSource) -> list[str]:
    return sorted(found.name for found in source.find())


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, ["a.jpg", "b/a.jpg", "b/c/d.PNG", "thumbs/f.jpg"]),
        ({"patterns": ["*.png"]}, ["b/c/d.PNG"]),
        ({"patterns": ["b/*.jpg", "*.png"]}, ["b/a.jpg", "b/c/d.PNG"]),
        ({"exclude": ["thumbs", "b/c"]}, ["a.jpg", "b/a.jpg"]),
        ({"exclude": ["thumbs/", "./b/c/"]}, ["a.jpg", "b/a.jpg"]),
        ({"exclude": ["*/*"]}, ["a.jpg"]),
        (
            {"hidden": True},
            [".cache/e.jpg", ".hidden.jpg", "a.jpg", "b/a.jpg", "b/c/d.PNG", "thumbs/f.jpg"],
        ),
    ],
)
def test_a_selection_is_the_same_for_folders_and_archives(tree: Path, selection, expected) -> None:
    chosen = Selection(**selection)
    assert names_of(FolderSource(tree, chosen)) == expected
    packed = tree.parent / "tree.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for path in tree.rglob("*"):
            archive.write(path, path.relative_to(tree))
    with open_sources([packed], chosen) as [source]:
        assert sorted(found.name for found in source.find()) == expected


@pytest.mark.skipif(os.name != "posix", reason="links and pipes")
def test_links_and_odd_files(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jpg"
    outside.write_bytes(make_image(1))
    (tree / "out.jpg").symlink_to(outside)
    (tree / "in.jpg").symlink_to(tree / "b" / "a.jpg")
    (tree / "loop").symlink_to(tree)
    (tree / "broken.jpg").symlink_to(tree / "nothing")
    (tree / "itself.jpg").symlink_to(tree / "itself.jpg")
    os.mkfifo(tree / "pipe.jpg")
    source = FolderSource(tree)
    found = {one.name: one for one in source.find()}
    expected = {"a.jpg", "b/a.jpg", "b/c/d.PNG", "thumbs/f.jpg", "in.jpg", "broken.jpg", "pipe.jpg"}
    assert set(found) == {*expected, "itself.jpg"} and source.left_out.links == 2
    assert found["itself.jpg"].problem == "Too many levels of symbolic links"
    assert found["pipe.jpg"].problem == "not a regular file"
    assert found["broken.jpg"].problem == "a link to a file that is not there"
    with pytest.raises(ImageUnreadableError, match="not a regular file"):
        source.read(found["pipe.jpg"].locator, 10**6)
    with pytest.raises(ImageTooLargeError, match="more bytes than the limit of 10"):
        source.read(found["a.jpg"].locator, 10)


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_no_link_leads_out_of_the_root_of_all_folders(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(make_image(1))
    (tmp_path / "link.jpg").symlink_to(tmp_path / "photo.jpg")
    place = tmp_path.resolve().relative_to("/").as_posix()

    class OnTheWay(Selection):
        def takes_folder(self, path: str) -> bool:
            return f"{place}/".startswith(f"{path}/")

    source = FolderSource(Path("/"), OnTheWay(patterns=[f"{place}/*.jpg"]))
    assert names_of(source) == [f"{place}/link.jpg", f"{place}/photo.jpg"]
    assert source.left_out.links == 0


def test_files_of_a_list_come_once_in_its_order(photos: Path, tmp_path: Path, batch, monkeypatch) -> None:
    wanted = ["day1/001.png", "day0/000.png", "missing.png", "day1/001.png"]
    listed = tmp_path / "list.txt"
    out = tmp_path / "out.jsonl"
    for flags, text in (((), "\n".join(wanted) + "\n"), (("-0",), "\0".join(wanted))):
        listed.write_text(text)
        assert batch(photos, "--files-from", listed, "-o", out, *flags) == 1
        records = [json.loads(line) for line in out.read_text().splitlines()]
        assert [record["image"] for record in records] == wanted[:3]
        assert records[2]["error"] == {"code": "unreadable", "message": "No such file or directory"}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"day2/003.png\r\n")))
    monkeypatch.chdir(photos)
    assert batch("--files-from", "-", "-o", out) == 0
    assert json.loads(out.read_text())["image"] == "day2/003.png"


def test_a_url_in_a_list_is_told_what_fetches_it(photos: Path, tmp_path: Path, batch, capsys) -> None:
    listed, out = tmp_path / "list.txt", tmp_path / "out.jsonl"
    url = "https://shop.example/1.jpg"
    listed.write_text(f"{url}\nday0/000.png\n")
    assert batch(photos, "--files-from", listed, "-o", out) == 1
    reason = "is a URL: batch reads files; captioner caption --allow-urls fetches it"
    assert json.loads(out.read_text().splitlines()[0])["error"] == {"code": "unreadable", "message": reason}
    assert f"{url}: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("separator", "chunks", "expected"),
    [
        (b"\n", [b"a\nb", b"c\n\n", b"d"], ["a", "bc", "d"]),
        (b"\n", [b"a.jpg\r\n\r\n \nb", b".jpg\r"], ["a.jpg", "b.jpg"]),
        (b"\n", [b"a.jpg\n\r"], ["a.jpg"]),
        (b"\0", [b"a.jpg\r\0\0 \0b\n", b".jpg\r\0", b"c.jpg\r"], ["a.jpg\r", " ", "b\n.jpg\r", "c.jpg\r"]),
        (b"\0", [b"a\n\0"], ["a\n"]),
    ],
)
def test_names_in_a_list(separator, chunks, expected) -> None:
    assert list(read_names(chunks, separator)) == expected


def test_several_places_do_not_collide(photos: Path, tmp_path: Path, batch, monkeypatch) -> None:
    monkeypatch.chdir(photos)
    out = tmp_path / "out.jsonl"
    assert batch("day0", "day1", "broken.jpg", "-o", out) == 1
    names = [json.loads(line)["image"] for line in out.read_text().splitlines()]
    assert len(names) == len(set(names)) == 61
    assert {"day0/000.png", "day1/000.png", "broken.jpg"} <= set(names)


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_what_may_not_be_read_is_a_failure(tree: Path, tmp_path: Path, start_batch) -> None:
    (tree / "b").chmod(0)
    (tree / "a.jpg").chmod(0)
    out = tmp_path / "out.jsonl"
    process = start_batch(tree, "-o", out, as_anybody=True)
    _, errors = process.communicate()
    (tree / "b").chmod(0o700)
    assert process.returncode == 1, errors
    records = {record["image"]: record for record in map(json.loads, out.read_text().splitlines())}
    assert set(records) == {"a.jpg", "b", "thumbs/f.jpg"} and "caption" in records["thumbs/f.jpg"]
    assert records["b"]["error"] == {"code": "unreadable", "message": "this folder: Permission denied"}
    assert records["a.jpg"]["error"] == {"code": "unreadable", "message": "Permission denied"}
    (tree / "a.jpg").chmod(0o600)
    process = start_batch(tree, "-o", out, "--retry-failed", as_anybody=True)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert len(out.read_text().splitlines()) == 4


@pytest.mark.skipif(os.name != "posix", reason="names are bytes on POSIX only")
def test_names_that_are_not_utf8(tmp_path: Path, batch) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    for name in (b"latin-\xfc.png", b"line\nbreak.png", "grün.png".encode()):
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(make_image(len(name)))
    assert batch(root, "-o", tmp_path / "out.jsonl") == 0
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    names = {record["image"]: record.get("image_bytes") for record in records}
    whole = base64.b64encode(b"latin-\xfc.png").decode()
    assert names == {"grün.png": None, r"latin-\udcfc.png": whole, "line\nbreak.png": None}
    for format in ("csv", "parquet", "txt"):
        flags = ("--format", format, "--template", "{name}: {caption}")
        assert batch(root, "-o", tmp_path / f"out.{format}", *flags) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing", "-o", "out.jsonl"), "missing: there is no such folder or file"),
        (("empty", "-o", "out.jsonl"), "there are no images"),
        (("empty", "-o", "out.doc"), "the format must be one of jsonl,"),
        (("-o", "out.jsonl"), "name a folder"),
        (("empty", "empty", "--files-from", "x", "-o", "out.jsonl"), "--files-from: x: No such file"),
        (("empty", "-o", "no/such/folder/out.jsonl"), "cannot write"),
        (("empty", "-o", "out.jsonl", "--template", "{text}"), "--template knows {caption}"),
        (("empty", "-o", "out.jsonl", "--min-confidence", "0.5"), "has not been calibrated"),
        (("empty", "-o", "out.csv", "--attention"), "csv holds neither words nor alternatives"),
        (("empty", "-o", "-", "--format", "csv"), "- is not a file name: batch writes files"),
        (("empty", "-o", "-", "--engine", "ray"), "- is not a file name: batch writes files"),
    ],
)
def test_wrong_usage(tmp_path: Path, batch, monkeypatch, capsys, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    assert batch(*arguments) == 2
    errors = capsys.readouterr().err.splitlines()
    assert message in errors[-1] and errors[-1].startswith("captioner: ")


@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
def test_no_input_is_overwritten(tmp_path: Path, batch, capsys, tiny_captioner, flags) -> None:
    root, archive, elsewhere = tmp_path / "photos", tmp_path / "photos.zip", tmp_path / "elsewhere"
    (root / "more").mkdir(parents=True)
    for path in (root / "a.png", root / "more" / "b.PNG", elsewhere):
        path.write_bytes(make_image(1))
    with zipfile.ZipFile(archive, "w") as written:
        written.write(root / "a.png", "a.png")
    listed, decided = tmp_path / "list.txt", tmp_path / "corrections.jsonl"
    listed.write_text("more/b.PNG\n../elsewhere\n")
    decided.write_text('{"image": "a.png", "caption": "x", "status": "edited"}\n')
    for source, output, *more in (
        (root, root / "a.png"),
        (root, root / "more" / "b.PNG"),
        (archive, archive),
        (root / "a.png", root / "a.png"),
        (root, decided, "--corrections", decided),
        (root, listed, "--files-from", listed),
        (root, elsewhere, "--files-from", listed),
    ):
        before = output.read_bytes()
        assert batch(source, "-o", output, "--format", "jsonl", *more, *flags) == 2
        error = f"captioner: {output} is one of the inputs; choose another name for OUT\n"
        assert capsys.readouterr().err == error
        assert output.read_bytes() == before
    with pytest.raises(OutputError, match="is one of the inputs"):
        next(
            iter_folder(root, root / "a.png", captioner=tiny_captioner, format="jsonl", overwrite=bool(flags))
        )


def test_failures_of_an_earlier_run_are_named_again(photos, tmp_path, batch, capsys) -> None:
    for when in ("", " (from an earlier run)"):
        assert batch(photos, "-o", tmp_path / "out.jsonl") == 1
        [line] = [line for line in capsys.readouterr().err.splitlines() if "broken.jpg" in line]
        assert line.startswith("captioner: broken.jpg: ") and line.endswith(f"kind{when}")


def test_links_to_folders_are_counted(photos, tmp_path, batch, capsys) -> None:
    (photos / "again").symlink_to(photos / "day0")
    (photos / "loop").symlink_to("loop")
    assert batch(photos, "-o", tmp_path / "out.jsonl") == 1
    assert "not followed: 1 link to folders" in capsys.readouterr().err


def test_names_that_are_too_long_are_no_inputs(tmp_path: Path) -> None:
    long = "x" * 300
    check_no_input(tmp_path / long, [tmp_path])
    (tmp_path / "out.jsonl").write_bytes(b"")
    check_no_input(tmp_path / "out.jsonl", [tmp_path / long])


def test_a_list_may_begin_with_a_byte_order_mark() -> None:
    assert list(read_names([b"\xef\xbb\xbfa.jpg\r\nb.jpg\r\n"])) == ["a.jpg", "b.jpg"]
    assert list(read_names([b"\xef\xbb\xbfa.jpg"], b"\0")) == ["\ufeffa.jpg"]


@pytest.mark.parametrize(
    ("flags", "content", "hint"),
    [
        ((), b"001.png\0day2/003.png\0", "-0"),
        ((), "001.png\r\n".encode("utf-16"), "UTF-8"),
        (("-0",), b"001.png\nday2/003.png\n", "without -0"),
    ],
)
def test_a_list_with_other_ends_of_names_is_refused(photos, batch, tmp_path, capsys, flags, content, hint):
    """Such as that of `find -print0`, or of Windows PowerShell."""
    (tmp_path / "list.txt").write_bytes(content)
    assert batch(photos, "--files-from", tmp_path / "list.txt", "-o", tmp_path / "out.jsonl", *flags) == 2
    assert hint in capsys.readouterr().err and not (tmp_path / "out.jsonl").exists()


def test_a_gallery_in_the_folder_is_not_captioned(tmp_path: Path, batch) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    (root / "a.jpg").write_bytes(make_image(1, format="JPEG"))
    flags = ("--attention", "--gallery", root / "index.html")
    assert batch(root, "-o", tmp_path / "out.jsonl", *flags) == 0
    assert (root / "index.files" / "photos" / "0.jpg").is_file()
    assert names_of(FolderSource(root)) == ["a.jpg"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), ["a.jpg", "b.raw"]),
        (("--exclude", "b*"), ["a.jpg"]),
        (("--pattern", "*.raw"), ["b.raw"]),
    ],
)
def test_named_files_obey_given_flags(tmp_path: Path, batch, monkeypatch, flags, expected) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jpg", "b.raw"):
        Path(name).write_bytes(make_image(1, format="JPEG"))
    assert batch("a.jpg", "b.raw", "-o", "out.jsonl", *flags) == 0
    assert [json.loads(line)["image"] for line in Path("out.jsonl").read_text().splitlines()] == expected
