"""What people and other programs wrote into their photos: it stays, and what is ours can be told from it."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.serving import make_image

from captioner.folder.state import State

pytestmark = pytest.mark.skipif(shutil.which("exiftool") is None, reason="needs the program exiftool")

DESCRIPTION, ALT_TEXT = "XMP-dc:Description", "XMP-iptcCore:AltTextAccessibility"
WRITER = "XMP-photoshop:CaptionWriter"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(make_image(1, format="JPEG"))
    return folder


@pytest.fixture
def embed(root: Path, batch: Callable[..., int]) -> Callable[..., int]:
    return lambda *flags: batch(root, "-o", root, "--format", "xmp", "--embed", *flags)


def tags(path: Path) -> dict[str, Any]:
    done = subprocess.run(["exiftool", "-j", "-n", "-G1", path], capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


def put(path: Path, *changes: str) -> None:
    subprocess.run(
        ["exiftool", "-q", "-overwrite_original", *(f"-{one}" for one in changes), path], check=True
    )


def test_texts_in_other_languages_stay(root, embed) -> None:
    photo = root / "a.jpg"
    put(photo, f"{DESCRIPTION}-fr=Le chat de Marie", f"{ALT_TEXT}-fr=Un chat gris")
    assert embed() == 0
    first = tags(photo)
    put(photo, f"{DESCRIPTION}-de=Maries Katze")  # a translation added later
    assert embed("--prefix", "now ") == 0
    now = tags(photo)
    assert now[DESCRIPTION] == now[ALT_TEXT] == f"now {first[DESCRIPTION]}"
    assert now[f"{DESCRIPTION}-fr"] == "Le chat de Marie" and now[f"{ALT_TEXT}-fr"] == "Un chat gris"
    assert now[f"{DESCRIPTION}-de"] == "Maries Katze"


def test_a_persons_text_in_our_language_is_not_hidden(root, embed) -> None:
    put(root / "a.jpg", f"{DESCRIPTION}-en-GB=My cat")
    assert embed() == 0
    now = tags(root / "a.jpg")
    assert DESCRIPTION not in now and now[f"{DESCRIPTION}-en-GB"] == "My cat"


PERSONS = (
    "EXIF:ImageDescription=Grandmother with the cat",
    "EXIF:ImageDescription=Grandmother's first digital camera",
    "IPTC:Caption-Abstract=Grandmother with the cat",
    "XMP-tiff:ImageDescription=Grandmother with the cat",
    "IFD0:XPComment=Grandmother with the cat",
    "PNG:Description=Grandmother with the cat",
    "ExifIFD:UserComment=Grandmother's cat, 1999",
    "ExifIFD:UserComment=Мурка спит",
    "ExifIFD:UserComment=बिल्ली सो रही है",
    "ExifIFD:UserComment=e\u0301te\u0301 à Paris",
)
CAMERAS = (
    "EXIF:ImageDescription=OLYMPUS DIGITAL CAMERA",
    "EXIF:ImageDescription=SONY DSC",
    "EXIF:ImageDescription=DCIM\\100MEDIA\\DJI_0001.JPG",
    "EXIF:ImageDescription=   ",
    "ExifIFD:UserComment=oplus_1048864",
    "ExifIFD:UserComment=Screenshot",
    'ExifIFD:UserComment={"mirror":false,"sensor_type":"rear"}',
    "ExifIFD:UserComment=filter: 0; fileterIntensity: 0.0; filterMask: 0;",
    "ExifIFD:UserComment=a cat on a table, best quality\nSteps: 20, Sampler: Euler a",
)


@pytest.mark.parametrize("beside", [False, True])
def test_descriptions_in_other_tags_count_unless_a_camera_wrote_them(root, batch, capsys, beside) -> None:
    (root / "a.jpg").unlink()
    photos = []
    for number, change in enumerate((*PERSONS, *CAMERAS)):
        format = "PNG" if change.startswith("PNG:") else "JPEG"
        photos.append(root / f"{number}.{format.lower()}")
        photos[-1].write_bytes(make_image(number, format=format))
        put(photos[-1], change)
    assert batch(root, "-o", root, "--format", "xmp", *([] if beside else ["--embed"])) == 0
    assert f"{len(PERSONS)} kept as they were" in capsys.readouterr().err
    for number, photo in enumerate(photos):
        now = tags(photo.with_name(f"{photo.name}.xmp") if beside else photo)
        assert (DESCRIPTION not in now) == (number < len(PERSONS)) and now[ALT_TEXT]


def test_the_caption_of_a_machine_is_marked_as_one(root, tmp_path, embed, tiny_bundle) -> None:
    from captioner.model.bundle import Bundle

    photo, corrections = root / "a.jpg", tmp_path / "corrections.jsonl"
    put(photo, f"{WRITER}=Jane Doe")
    assert embed() == 0
    assert tags(photo)[WRITER] == f"Jane Doe; captioner {Bundle.load(tiny_bundle).identity}"
    decision = {"image": "a.jpg", "caption": "my boat", "status": "edited"}
    corrections.write_text(json.dumps(decision))
    assert embed("--corrections", corrections) == 0
    assert tags(photo)[DESCRIPTION] == "my boat" and tags(photo)[WRITER] == "Jane Doe"
    assert embed() == 0
    assert "; captioner " in tags(photo)[WRITER]
    corrections.write_text(json.dumps({**decision, "status": "rejected"}))
    assert embed("--corrections", corrections) == 0
    assert DESCRIPTION not in tags(photo) and tags(photo)[WRITER] == "Jane Doe"


def test_only_what_we_wrote_is_taken_back(root, tmp_path, embed) -> None:
    photo, corrections = root / "a.jpg", tmp_path / "corrections.jsonl"
    put(photo, f"{DESCRIPTION}=a boat")
    corrections.write_text(json.dumps({"image": "a.jpg", "caption": "a boat", "status": "edited"}))
    assert embed("--corrections", corrections) == 0  # the same words as the person's
    corrections.write_text(json.dumps({"image": "a.jpg", "caption": "", "status": "rejected"}))
    put(photo, f"{ALT_TEXT}-fr=un bateau")
    assert embed("--corrections", corrections) == 0
    now = tags(photo)
    assert now[DESCRIPTION] == "a boat" and ALT_TEXT not in now and now[f"{ALT_TEXT}-fr"] == "un bateau"


def test_a_caption_with_letters_that_show_nothing_is_ours(root, tmp_path, embed) -> None:
    corrections = tmp_path / "corrections.jsonl"
    for caption, written in (("a boat\u200b at\u202e sea", "a boat at sea"), ("a ship", "a ship")):
        corrections.write_text(json.dumps({"image": "a.jpg", "caption": caption, "status": "edited"}))
        for flags in ((), ("--overwrite",)):
            assert embed("--corrections", corrections, *flags) == 0
            assert tags(root / "a.jpg")[DESCRIPTION] == tags(root / "a.jpg")[ALT_TEXT] == written


@pytest.mark.skipif(os.name != "posix", reason="modes, owners and links")
def test_embedding_leaves_the_file_what_it_was(root, embed, capsys) -> None:
    photo = root / "a.jpg"
    photo.chmod(0o640)
    os.utime(photo, (1_000_000_000, 1_000_000_000))
    if os.geteuid() == 0:
        os.chown(photo, 12345, 12345)
    before = photo.stat()
    assert embed() == 0
    after = photo.stat()
    for field in ("st_mode", "st_uid", "st_gid", "st_mtime"):
        assert getattr(after, field) == getattr(before, field)
    assert DESCRIPTION in tags(photo) and len(list(root.glob("[!.]*"))) == 1


@pytest.mark.parametrize(("format", "name"), [("JPEG", "b.heic"), ("PNG", "b.JPG"), ("WebP", "b.jpg")])
def test_a_photo_of_another_format_than_its_name_says_is_written_into(root, embed, format, name) -> None:
    """As messengers send them."""
    (root / name).write_bytes(make_image(2, format=format))
    assert embed() == 0
    assert DESCRIPTION in tags(root / name)


def test_a_photo_that_cannot_hold_a_description_is_a_failure(root, embed, capsys) -> None:
    (root / "b.ppm").write_bytes(content := make_image(2, format="PPM"))
    assert embed() == 1
    assert "b.ppm: cannot write b.ppm: it cannot hold this metadata" in capsys.readouterr().err
    assert (root / "b.ppm").read_bytes() == content and DESCRIPTION in tags(root / "a.jpg")


def test_a_full_disk_of_temporary_files_is_named(root, embed, tmp_path, capsys, monkeypatch) -> None:
    def write(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "write_bytes", write)
    assert embed() == 2
    assert f"cannot write {tmp_path / 'captioner-'}" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="modes and links")
def test_photos_that_may_not_be_changed_are_named(root, embed, capsys) -> None:
    for name in ("b.jpg", "c.jpg"):
        (root / name).write_bytes(make_image(2, format="JPEG"))
    (root / "b.jpg").chmod(0o444)
    (root / "other.jpg").hardlink_to(root / "c.jpg")
    before = {path: path.read_bytes() for path in root.glob("*.jpg") if path.name != "a.jpg"}
    assert embed() == 1
    errors = capsys.readouterr().err
    assert "b.jpg: cannot write b.jpg: it is read-only" in errors
    assert "c.jpg: cannot write c.jpg: it has several names (hard links)" in errors
    assert all(path.read_bytes() == content for path, content in before.items())
    assert (root / "c.jpg").samefile(root / "other.jpg") and DESCRIPTION in tags(root / "a.jpg")


def test_the_sidecar_of_lightroom_is_used(root, batch) -> None:
    def run(*flags: str) -> None:
        assert batch(root, "-o", root, "--format", "xmp", *flags) == 0

    sidecar = root / "a.xmp"
    put(sidecar, "XMP-xmp:Rating=5")
    for prefix in ("", "now "):
        run("--prefix", prefix)
        assert tags(sidecar)[DESCRIPTION].startswith(prefix) and tags(sidecar)["XMP-xmp:Rating"] == 5
        assert not (root / "a.jpg.xmp").exists()


def test_a_sidecar_of_another_photo_of_the_name_is_not_used(root, batch) -> None:
    (root / "b.jpg").write_bytes(make_image(2, format="JPEG"))
    (root / "b.nef").write_bytes(b"raw")
    put(root / "a.xmp", "XMP-photoshop:SidecarForExtension=CR2")
    put(root / "b.xmp", "XMP-xmp:Rating=5")
    assert batch(root, "-o", root, "--format", "xmp", "--pattern", "*.jpg") == 0
    assert DESCRIPTION not in tags(root / "a.xmp") and DESCRIPTION not in tags(root / "b.xmp")
    assert DESCRIPTION in tags(root / "a.jpg.xmp") and DESCRIPTION in tags(root / "b.jpg.xmp")


@pytest.mark.parametrize("suffix", [".nef", ".NEF"])
def test_the_sidecar_beside_two_photos_of_cameras_is_neither_ones(root, batch, suffix) -> None:
    """Cameras write names in capitals."""
    (root / "DSC_1.JPG").write_bytes(make_image(2, format="JPEG"))
    (root / f"DSC_1{suffix}").write_bytes(b"raw")
    put(root / "DSC_1.xmp", "XMP-xmp:Rating=5")
    assert batch(root, "-o", root, "--format", "xmp", "--pattern", "*.jpg") == 0
    assert DESCRIPTION not in tags(root / "DSC_1.xmp") and DESCRIPTION in tags(root / "DSC_1.JPG.xmp")


class Killed(BaseException):
    """Ends a run at once."""


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("earlier", [False, True])
def test_after_a_kill_the_caption_of_the_machine_is_no_persons(
    root, batch, tmp_path, capsys, monkeypatch, beside, earlier
) -> None:
    """The file has the caption, but the state does not say so yet."""
    run = functools.partial(batch, root, "-o", root, "--format", "xmp", *([] if beside else ["--embed"]))
    if earlier:
        assert run("--prefix", "once ") == 0
    with monkeypatch.context() as patch, pytest.raises(Killed):
        for name in ("restamp", "mark_published"):
            patch.setattr(State, name, Mock(side_effect=Killed))
        run()
    capsys.readouterr()
    place = root / ("a.jpg.xmp" if beside else "a.jpg")
    assert tags(place)[DESCRIPTION]
    assert run() == 0 and "kept as they were" not in capsys.readouterr().err
    corrections = tmp_path / "corrections.jsonl"
    corrections.write_text(json.dumps({"image": "a.jpg", "caption": "", "status": "rejected"}))
    assert run("--corrections", corrections) == 0
    assert not {DESCRIPTION, ALT_TEXT, WRITER} & set(tags(place) if place.exists() else ())


def test_after_a_kill_what_a_person_wrote_since_stays(root, embed, monkeypatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(State, "restamp", Mock(side_effect=Killed))
        embed()
    put(root / "a.jpg", f"{DESCRIPTION}=Grandmother with the cat")
    assert embed() == 0
    assert tags(root / "a.jpg")[DESCRIPTION] == "Grandmother with the cat"


def test_sidecars_and_photos_are_two_places(root, batch, embed, capsys) -> None:
    """As docs/batch.md has it: sidecars first, then the photos themselves, and what is ours stays ours."""
    sidecar, photo = root / "a.jpg.xmp", root / "a.jpg"
    flags = ("--style", "alt", "--keywords")
    for prefix in ("", "now "):
        assert batch(root, "-o", root, "--format", "xmp", *flags, "--prefix", prefix) == 0
        assert embed(*flags, "--prefix", prefix) == 0
        assert "kept as they were" not in capsys.readouterr().err
        for tag in (DESCRIPTION, ALT_TEXT, "XMP-dc:Subject", WRITER):
            assert tags(sidecar)[tag] == tags(photo)[tag]
        assert tags(photo)[DESCRIPTION].startswith(prefix)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (sidecar, photo)}
    assert batch(root, "-o", root, "--format", "xmp", *flags, "--prefix", "now ") == 0
    assert embed(*flags, "--prefix", "now ") == 0
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (sidecar, photo)}


def test_a_sidecar_is_written_where_we_embedded_the_same(root, batch, embed, capsys) -> None:
    assert embed("--keywords") == 0
    assert batch(root, "-o", root, "--format", "xmp", "--keywords") == 0
    assert "kept as they were" not in capsys.readouterr().err
    written = tags(root / "a.jpg.xmp")
    assert written[DESCRIPTION] == tags(root / "a.jpg")[DESCRIPTION] and written["XMP-dc:Subject"]


@pytest.mark.parametrize("beside", [False, True])
def test_flags_that_are_added_have_an_effect(root, batch, beside) -> None:
    place = root / ("a.jpg.xmp" if beside else "a.jpg")
    plain = () if beside else ("--embed",)
    paths = ("XMP-lr:HierarchicalSubject", "XMP-digiKam:TagsList")
    for flags in ((), ("--keywords",), ("--keywords", "--hierarchy")):
        assert batch(root, "-o", root, "--format", "xmp", *plain, *flags) == 0
        now = tags(place)
        assert now[DESCRIPTION] and ("XMP-dc:Subject" in now) == ("--keywords" in flags)
        assert all((path in now) == ("--hierarchy" in flags) for path in paths)
    assert batch(root, "-o", root, "--format", "xmp", *plain) == 0
    assert tags(place)["XMP-dc:Subject"] == now["XMP-dc:Subject"]  # nothing was asked about them


def test_a_photo_that_took_the_place_of_another_is_written_into(root, embed) -> None:
    photo = root / "a.jpg"
    original = photo.read_bytes()
    assert embed() == 0
    written = tags(photo)[DESCRIPTION]
    photo.write_bytes(original)  # as when it is exported again, or restored
    assert embed() == 0 and tags(photo)[DESCRIPTION] == written


@pytest.mark.parametrize("beside", [False, True])
def test_what_a_person_took_away_does_not_come_back(root, batch, beside) -> None:
    place = root / ("a.jpg.xmp" if beside else "a.jpg")
    flags = ("--format", "xmp", "--keywords", *(() if beside else ("--embed",)))
    assert batch(root, "-o", root, *flags) == 0
    put(place, f"{DESCRIPTION}=", "XMP-dc:Subject=")
    for _ in range(2):
        assert batch(root, "-o", root, *flags) == 0
        assert not {DESCRIPTION, "XMP-dc:Subject"} & set(tags(place)) and tags(place)[ALT_TEXT]


@pytest.mark.parametrize("beside", [False, True])
def test_overwrite_writes_what_is_gone(root, batch, beside) -> None:
    place = root / ("a.jpg.xmp" if beside else "a.jpg")
    flags = ("--format", "xmp", *(() if beside else ("--embed",)))
    assert batch(root, "-o", root, *flags) == 0
    put(place, f"{DESCRIPTION}=", f"{ALT_TEXT}=")
    assert batch(root, "-o", root, *flags, "--overwrite") == 0
    assert tags(place)[DESCRIPTION] and tags(place)[ALT_TEXT]


@pytest.mark.parametrize("keywords", [b"", b":keywords"])
@pytest.mark.parametrize("beside", [False, True])
def test_what_earlier_versions_wrote_is_ours(root, batch, tmp_path, monkeypatch, beside, keywords) -> None:
    """Their states have the digest of the text, letters for tags, and the digest of the keywords."""
    from captioner.folder.outputs.xmp import output as xmp
    from captioner.folder.outputs.xmp.written import Written

    def before(places: dict[str, Written]) -> bytes:
        [one] = places.values()
        return one.digest + b":" + one.tags.encode() + (b":" + one.keywords if keywords else b"")

    place = root / ("a.jpg.xmp" if beside else "a.jpg")
    flags = (root, "-o", root, "--format", "xmp", *(() if beside else ("--embed",)))
    with monkeypatch.context() as patch:
        patch.setattr(xmp, "join_places", before)
        assert batch(*flags, *(["--keywords"] if keywords else [])) == 0
    content = place.read_bytes()
    assert batch(*flags, *(["--keywords"] if keywords else [])) == 0
    assert place.read_bytes() == content
    corrections = tmp_path / "corrections.jsonl"
    corrections.write_text(json.dumps({"image": "a.jpg", "caption": "", "status": "rejected"}))
    assert batch(*flags, "--corrections", corrections) == 0
    assert not {DESCRIPTION, ALT_TEXT, WRITER, "XMP-dc:Subject"} & set(tags(place) if place.exists() else ())
