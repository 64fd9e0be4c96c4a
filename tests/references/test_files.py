"""The images of a data set in folders and zip files: found by the nearest name, never by chance."""

from __future__ import annotations

import errno
import tracemalloc
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from captioner.errors import DataError
from captioner.folder.sources.files import find_photos
from captioner.images.limits import ImageLimits
from captioner.references.files import ImageFiles
from captioner.references.listing import list_images


def make_zip(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, f"{path.stem}:{name}")
    return path


def make_folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{path.stem}:{name}")
    return path


def test_a_name_with_a_folder_is_looked_up_by_its_path(tmp_path: Path) -> None:
    files = ImageFiles([make_zip(tmp_path / "a.zip", "dogs/1.jpg", "cats/1.jpg", "cats/", "2.jpg")])
    assert files.read("dogs/1.jpg") == b"a:dogs/1.jpg"
    assert files.read("cats/1.jpg") == b"a:cats/1.jpg"
    assert files.read("elsewhere/2.jpg") == b"a:2.jpg"  # flattened


def test_the_end_of_a_path_is_enough(tmp_path: Path) -> None:
    files = ImageFiles([make_zip(tmp_path / "a.zip", "set/val2014/1.jpg", "set/train2014/1.jpg", "x/2.jpg")])
    assert files.read("val2014/1.jpg") == b"a:set/val2014/1.jpg"
    assert files.read("2.jpg") == b"a:x/2.jpg"


@pytest.mark.parametrize(("stored", "asked"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_accents_are_the_same_composed_or_not(tmp_path: Path, stored: str, asked: str) -> None:
    names = {form: unicodedata.normalize(form, "é/café.jpg") for form in ("NFC", "NFD")}
    archive = make_zip(tmp_path / "a.zip", names[stored])
    assert ImageFiles([archive]).read(names[asked]).startswith(b"a:")
    folder = make_folder(tmp_path / "f", names[stored])
    assert ImageFiles([folder]).read(names[asked]).startswith(b"f:")


def test_a_name_that_no_file_can_have_is_a_fault_of_its_own(tmp_path: Path) -> None:
    files = ImageFiles([make_folder(tmp_path / "photos", "1.jpg")])
    found, faults = files.places([f"{'x' * 300}.jpg", f"{'x/' * 4096}2.jpg", "1.jpg"])
    assert list(found) == ["1.jpg"]
    assert all("File name too long" in str(fault) for fault in faults.values())


def test_a_link_to_nothing_is_no_file(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", "1.jpg")
    (tmp_path / "photos" / "2.jpg").symlink_to("gone.jpg")
    with pytest.raises(DataError, match=r"; 2\.jpg is no file$"):
        ImageFiles([tmp_path / "photos"]).read("2.jpg")


def test_two_names_of_one_image_are_an_error(tmp_path: Path) -> None:
    files = ImageFiles([make_folder(tmp_path / "photos", "1.jpg", "2.jpg")])
    found, faults = files.places(["photos/1.jpg", "photos/2.jpg", "3.jpg"])
    assert list(found) == ["photos/1.jpg", "photos/2.jpg"] and list(faults) == ["3.jpg"]
    with pytest.raises(DataError, match=r"cats/1\.jpg and dogs/1\.jpg are one photo, .*1\.jpg"):
        files.places(["cats/1.jpg", "dogs/1.jpg"])


@pytest.mark.parametrize("asked", ["A.jpg", "a.JPG", "a", " a.jpeg ", "elsewhere\\a.png"])
def test_an_image_that_may_be_meant_is_named(tmp_path: Path, asked: str) -> None:
    places = make_folder(tmp_path / "photos", "x/a.jpg", "x/a.txt"), make_zip(tmp_path / "b.zip", "x/b.jpg")
    for name in (asked, asked.replace("a", "b").replace("A", "B").replace("elsewhere", "x")):
        with pytest.raises(DataError, match=r"none of the folders and archives given; there is x/[ab]\.jpg"):
            ImageFiles(places).read(name)


def test_a_name_that_could_be_two_images_is_an_error(tmp_path: Path) -> None:
    one, two = make_zip(tmp_path / "a.zip", "dogs/1.jpg", "cats/1.jpg"), make_zip(tmp_path / "b.zip", "1.jpg")
    with pytest.raises(DataError, match=r"1\.jpg is ambiguous: it may be cats/1\.jpg in .*a\.zip and dogs/1"):
        ImageFiles([one]).read("1.jpg")
    with pytest.raises(DataError, match="ambiguous"):
        ImageFiles([one]).read("birds/1.jpg")
    assert ImageFiles([one, two]).read("1.jpg") == b"b:1.jpg"
    folder = make_folder(tmp_path / "folder", "1.jpg", "dogs/1.jpg")
    with pytest.raises(DataError, match="ambiguous"):
        ImageFiles([folder, two]).read("1.jpg")


def test_images_are_found_in_folders_by_path_or_name(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "folder", "dogs/1.jpg", "2.jpg")
    files = ImageFiles([folder, folder / ".." / "folder"])
    assert files.read("dogs/1.jpg") == b"folder:dogs/1.jpg"
    assert files.read("dogs/2.jpg") == b"folder:2.jpg"
    assert files.read(r"C:\photos\dogs\2.jpg") == b"folder:2.jpg"  # as Windows writes it
    assert files.read(r"dogs\1.jpg") == b"folder:dogs/1.jpg"
    with pytest.raises(DataError, match=r"the image 3\.jpg is in none of the folders and archives given"):
        files.read("3.jpg")


def test_places_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no archive")
    for place in ("text.zip", "missing"):
        with pytest.raises(DataError, match=place):
            ImageFiles([tmp_path / place])


def test_a_damaged_member(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "a.zip", "1.jpg")
    data = bytearray(path.read_bytes())
    data[data.index(b"a:1.jpg")] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"1\.jpg in .*a\.zip: damaged in the archive"):
        ImageFiles([path]).read("1.jpg")


@pytest.mark.parametrize(
    ("kind", "size", "most"),
    [
        (zipfile.ZIP_STORED, 2**24, 2**20),
        (zipfile.ZIP_DEFLATED, 2**24, 2**20),
        (zipfile.ZIP_LZMA, 2**26, 2**25),
        (zipfile.ZIP_BZIP2, 2**28, 3 * 2**26),  # all in less than 4096 bytes
    ],
)
def test_an_image_has_no_more_bytes_than_the_limit(tmp_path: Path, kind: int, size: int, most: int) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("2.jpg", bytes(2**12))
        with archive.open("1.jpg", "w") as member:
            for _ in range(size // 2**22):
                member.write(bytes(2**22))
    files = ImageFiles([path], ImageLimits(max_bytes=2**12))
    assert files.read("2.jpg") == bytes(2**12)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"1\.jpg in .*a\.zip: more bytes than the limit of 4096 \(max_byt"):
        files.read("1.jpg")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < most


def test_a_file_of_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "1.jpg").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DataError, match=r"1\.jpg: more bytes than the limit of 268435456 \(max_bytes\)"):
        ImageFiles([tmp_path]).read("1.jpg")


def test_a_folder_has_the_same_photos_for_a_run_and_as_a_data_set(tmp_path: Path) -> None:
    thumbnails = ("@eaDir/1.jpg", ".hidden/1.jpg", "a/Previews.lrdata/1.jpg", ".1.jpg")
    gallery = ("page.files/captioner-gallery.txt", "page.files/photos/1.jpg", "page.files/1.jpg")
    make_folder(tmp_path, "1.jpg", "a/2.png", "a/b/3.webp", "a/text.txt", *thumbnails, *gallery)
    assert list_images(tmp_path) == ["1.jpg", "a/2.png", "a/b/3.webp"]
    assert list_images(tmp_path) == [photo.name for photo in find_photos(tmp_path)]


def test_what_may_not_be_read_is_left_out_and_named(tmp_path: Path, monkeypatch, caplog) -> None:
    make_folder(tmp_path, "1.jpg", "closed/2.jpg", "closed/notes.txt")
    is_file = Path.is_file

    def check(path: Path) -> bool:
        if path.parent.name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", check)
    assert list_images(tmp_path) == ["1.jpg"]
    assert caplog.messages == [f"{tmp_path / 'closed' / '2.jpg'}: Permission denied"]


@pytest.mark.parametrize("read", [lambda path: ImageFiles([path]), list_images])
def test_a_table_of_contents_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object]
) -> None:
    path = make_zip(tmp_path / "a.zip", *(f"{number}.jpg" for number in range(100)))
    read(path)
    monkeypatch.setattr("captioner.files.zip_archive.MAX_DIRECTORY_BYTES", 1000)
    with pytest.raises(DataError, match="a table of contents or a header that is too large"):
        read(path)
