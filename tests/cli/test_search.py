"""`captioner search` as a user calls it."""

import json
import os
from pathlib import Path

import pytest
from PIL import Image

from captioner.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
CAPTIONS = {
    "sea/a.jpg": "a dog runs on the beach",
    "b.jpg": "two children are riding bikes on a street",
    "c.jpg": "a puppy sleeps on a couch",
    "d.jpg": "a man walks his dog down a street",
}


@pytest.fixture
def folder(tmp_path) -> Path:
    lines = [json.dumps({"image": name, "caption": text, "log_prob": -1}) for name, text in CAPTIONS.items()]
    failed = json.dumps({"image": "e.jpg", "error": {"code": "not_an_image", "message": "no"}})
    (tmp_path / "captions.jsonl").write_text("\n".join([*lines, failed]))
    return tmp_path


def found(capsys) -> list[str]:
    return [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("kid", ["b.jpg"]),
        ("a dog on a beach", ["sea/a.jpg", "d.jpg", "c.jpg"]),  # a puppy is a dog, but not the word
        ("dog -street", ["sea/a.jpg", "c.jpg"]),
        ('"on a street"', ["b.jpg"]),
        ('dog "down a street"', ["d.jpg"]),
        ("ridden BICYCLE", ["b.jpg"]),
        ("zebra", []),
    ],
)
def test_photos_are_found_by_their_captions(words, names, folder, capsys):
    assert main(["search", str(folder), words]) == 0
    assert found(capsys) == names
    assert main(["search", str(folder / "captions.jsonl"), words, "-n", "1"]) == 0
    assert found(capsys) == names[:1]


def test_words_need_no_quotes(folder, capsys):
    assert main(["search", str(folder), "a", "dog", "on", "a", "beach", "-n", "1"]) == 0
    assert found(capsys) == ["sea/a.jpg"]


def test_a_compound_is_one_word(tmp_path, capsys):
    texts = ["a hot dog on a table", "a dog on a hot day", "two hotdogs", "a toy bear", "a pit bull", "bears"]
    lines = [json.dumps({"image": text, "caption": text, "log_prob": -1}) for text in texts]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    for words, names in {
        "dog": ["a dog on a hot day", "a pit bull"],
        "hot dogs": ["two hotdogs", "a hot dog on a table"],
        "animal": ["bears", "a pit bull", "a dog on a hot day"],
        "toy": ["a toy bear"],
        "hot": ["a dog on a hot day"],
        '"dog on"': ["a hot dog on a table", "a dog on a hot day"],
    }.items():
        assert main(["search", str(tmp_path), words]) == 0
        assert sorted(found(capsys)) == sorted(names), words


def test_names_that_are_not_utf_8_are_json_for_all(tmp_path, capsys):
    name = os.fsdecode(b"lat\xe9.png")
    Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / name).with_suffix(".txt").write_text("a black square")
    assert main(["search", str(tmp_path), "square", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["image"] == "lat\\udce9.png"


def test_what_a_person_decided_counts(folder, capsys):
    decisions = [
        {"image": "c.jpg", "caption": "a zebra", "status": "edited"},
        {"image": "d.jpg", "caption": CAPTIONS["d.jpg"], "status": "rejected"},
    ]
    (folder / "corrections.jsonl").write_text("\n".join(map(json.dumps, decisions)))
    assert main(["search", str(folder), "zebra dog", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["image"], line["caption"]) for line in lines] == [
        ("c.jpg", "a zebra"),
        ("sea/a.jpg", CAPTIONS["sea/a.jpg"]),
    ]


def test_other_captions_count_less(tmp_path, capsys):
    others = [{"caption": "a cat in the snow", "log_prob": -2}]
    records = [
        {"image": "a.jpg", "caption": "a cat on a bed", "log_prob": -1, "alternatives": others},
        {"image": "b.jpg", "caption": "a house in the snow", "log_prob": -1},
    ]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert main(["search", str(tmp_path / "c.jsonl"), "snow"]) == 0
    assert found(capsys) == ["b.jpg", "a.jpg"]


def test_text_files_beside_photos_are_searched(tmp_path, capsys):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a black square")
    assert main(["search", str(tmp_path), "squares"]) == 0
    assert found(capsys) == ["a.png"]


def sidecar(description: str = "", alt_text: str = "", extension: str = "") -> str:
    def of_languages(name: str, text: str) -> str:
        items = f'<rdf:li xml:lang="x-default">{text}</rdf:li><rdf:li xml:lang="de">Zebra</rdf:li>'
        return f"<{name}><rdf:Alt>{items}</rdf:Alt></{name}>" if text else ""

    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description xmlns:dc="http://purl.org/dc/elements/1.1/" '
        'xmlns:Iptc4xmpCore="http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/" '
        f'xmlns:photoshop="http://ns.adobe.com/photoshop/1.0/" photoshop:SidecarForExtension="{extension}">'
        + of_languages("dc:description", description)
        + of_languages("Iptc4xmpCore:AltTextAccessibility", alt_text)
        + "</rdf:Description></rdf:RDF></x:xmpmeta>"
    )


@pytest.fixture
def beside(tmp_path):
    """Writes photos, and files beside them."""

    def write(*photos: str, **files: str) -> Path:
        for name in photos:
            Image.new("RGB", (8, 8)).save(tmp_path / name)
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text, encoding="utf-8")
        return tmp_path

    return write


def test_sidecars_of_xmp_are_searched(beside, capsys):
    folder = beside(
        *("a.png", "b.png", "b.jpg", "c.png", "d.jpg", "d.png", "e.png"),
        a_png_xmp=sidecar("a dog &amp; a\ncat", "another"),
        b_xmp=sidecar(alt_text="a dog in the snow"),  # belongs to the first, as text files do
        c_xmp=sidecar(),  # of another program, without a caption
        d_xmp=sidecar("a dog on a bed", extension="PNG"),
        e_txt="a cat",
        e_xmp=sidecar("a dog, but text files come first"),
    )
    assert main(["search", str(folder), "dog"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a.png\ta dog & a cat",
        "b.jpg\ta dog in the snow",
        "d.png\ta dog on a bed",
    ]
    assert main(["search", str(folder), "zebra"]) == 0  # of another language
    assert capsys.readouterr().out == ""


def test_alt_text_is_searched_beside_a_description(beside, capsys):
    folder = beside(
        *("a.png", "b.png"),
        a_xmp=sidecar("OLYMPUS DIGITAL CAMERA", "A dog on a red sofa."),
        b_xmp=sidecar("Bello, 2019", "A dog in the snow."),
    )
    for words, lines in (
        ("dog", ["a.png\tA dog on a red sofa.", "b.png\tBello, 2019"]),
        ('"dog in the snow"', ["b.png\tBello, 2019"]),
        ("bello", ["b.png\tBello, 2019"]),
        ("dog -snow", ["a.png\tA dog on a red sofa."]),
        ("-snow -sofa camera", []),
        ('"2019 a"', []),  # two texts are no phrase
    ):
        assert main(["search", "--", str(folder), words]) == 0
        assert sorted(capsys.readouterr().out.splitlines()) == lines


@pytest.mark.parametrize(
    "hostile",
    [
        '<!DOCTYPE a [<!ENTITY b "dog dog"><!ENTITY c "&b;&b;&b;">]>' + sidecar("&c;"),
        '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/hostname">]>' + sidecar("&b;"),
        sidecar("<a>" * 50_000 + "dog" + "</a>" * 50_000),
        sidecar("dog")[:-30],
        "<rdf:RDF" * 50_000 + "</rdf:RDF>" * 50_000,
        sidecar("dog" * 2**19),
    ],
    ids=["entities", "file", "deep", "cut off", "many", "large"],
)
def test_hostile_sidecars_are_no_captions(hostile, beside, capsys):
    folder = beside("a.png", "b.png", a_xmp=hostile, b_xmp=sidecar("a dog"))
    assert main(["search", str(folder), "dog"]) == 0
    assert capsys.readouterr().out == "b.png\ta dog\n"


def test_a_sidecar_that_cannot_be_read_is_named(beside, capsys, caplog):
    folder = beside("a.png", "b.png", a_xmp=sidecar("dog")[:-30], b_xmp=sidecar("a dog"))
    assert main(["search", str(folder), "dog"]) == 0
    assert f"{folder / 'a.xmp'}: not XMP that can be read" in caplog.text


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("狗", ["a.png", "b.png"]),
        ("狗 桌子", ["a.png", "b.png"]),
        ("狗 -桌子", ["b.png"]),
        ('"在桌子"', ["a.png"]),
        ('狗 -"在桌子"', ["b.png"]),
        ("แมว", ["c.png"]),
        ("机", []),
    ],
)
def test_words_are_found_where_they_are_not_divided(words, names, tmp_path, capsys):
    for name, text in (("a", "一只狗坐在桌子上"), ("b", "两只狗在草地上奔跑"), ("c", "แมวนั่งอยู่บนโต๊ะ")):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    assert main(["search", str(tmp_path), words]) == 0
    assert found(capsys) == names


@pytest.mark.parametrize(
    ("words", "names"),
    [("狗", ["a.png", "b.png"]), ("黑狗", ["a.png"]), ('"只 黑狗"', ["a.png"]), ('狗 -"一只"', ["b.png"])],
)
def test_it_does_not_matter_how_words_were_divided(words, names, tmp_path, capsys):
    for name, text in (("a", "一 只 黑 狗"), ("b", "两只狗在草地上")):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    assert main(["search", str(tmp_path), words]) == 0
    assert sorted(found(capsys)) == names


@pytest.mark.parametrize(
    "words", ["Muller", "MÜLLER", "mu\u0308ller", '"tante muller"', "café", "cafe", "-Hund muller"]
)
def test_accents_may_be_left_out_as_in_a_gallery(words, tmp_path, capsys):
    for name, text in (("a", "Tante Müller im Cafe\u0301"), ("b", "が")):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    assert main(["search", str(tmp_path), words]) == 0
    assert found(capsys) == ["a.png"]
    assert main(["search", str(tmp_path), "か"]) == 0  # another letter
    assert found(capsys) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Fußgänger auf der Straße", "STRASSE"),
        ("mặc áo đỏ", "do"),
        ("kırmızı ışık", "isik"),
        ("łódź na wodzie", "lodz"),
        ("un œuf", "oeuf"),
        ("rød båd", "rod"),
        ("L’homme près de l’église", "homme"),
        ("une église", "l'église"),
        ("le acque dell'isola", "isola"),
        ("İstanbul'da bir kedi", "istanbul"),
        ("كلـــب بني", "كلب"),
        ("một em bé", "bé gái"),
    ],
)
def test_words_are_found_as_people_type_them(text, words, tmp_path, capsys):
    lines = [json.dumps({"image": name, "caption": name, "log_prob": -1}) for name in ("gai", text)]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    assert main(["search", str(tmp_path), words]) == 0
    assert text in found(capsys)


@pytest.mark.skipif(os.name != "posix", reason="names of 255 bytes")
def test_photos_with_names_as_long_as_can_be_are_searched(tmp_path, capsys):
    for stem in ("a", "x" * 251):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{stem}.png")
        (tmp_path / f"{stem}.txt").write_text(f"a {stem[0]} square")
    assert main(["search", str(tmp_path), "square"]) == 0
    assert sorted(found(capsys)) == ["a.png", f"{'x' * 251}.png"]


def test_a_text_file_that_cannot_be_read_is_named(tmp_path, capsys, caplog):
    for name, encoding in (("a", "latin-1"), ("b", "utf-8")):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
        (tmp_path / f"{name}.txt").write_text("ein schwarzes Viereck für alle", encoding=encoding)
    assert main(["search", str(tmp_path), "Viereck"]) == 0
    assert found(capsys) == ["b.png"]
    assert f"{tmp_path / 'a.txt'}: not in UTF-8; save it as UTF-8" in caplog.messages


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["."], "name what to search for"),
        ([".", "-- -dog"], "name at least one word"),
        (["nowhere", "dog"], "nowhere: there is no such folder or file"),
        (["dog"], "dog: there is no such folder or file"),
        (
            ["empty", "dog"],
            "there are no captions in this folder yet; make them by: captioner batch empty -o",
        ),
        (["captions.jsonl", "--duplicates"], "there is no such folder"),
        ([".", "dog", "--duplicates"], "--duplicates takes a folder only"),
        (
            ["photo.jpg", "dog"],
            "photo.jpg is a photo: search finds photos by their captions, in the folder or",
        ),
        (["words.bin", "dog"], "words.bin: not a text file; captions are read from"),
    ],
)
def test_what_cannot_be_searched(arguments, reason, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    Path("empty").mkdir()
    for name in ("photo.jpg", "words.bin"):
        Path(name).write_bytes((EXAMPLES / "cat.jpg").read_bytes())
    assert main(["search", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_photos_that_look_alike_are_listed(tmp_path, capsys):
    with Image.open(EXAMPLES / "cat.jpg") as cat, Image.open(EXAMPLES / "coffee.jpg") as coffee:
        cat.save(tmp_path / "cat.png")
        cat.resize((200, 133)).save(tmp_path / "small.jpg", quality=60)
        coffee.save(tmp_path / "coffee.jpg")
    for name in ("black.png", "also black.png"):
        Image.new("RGB", (40, 40)).save(tmp_path / name)
    (tmp_path / "broken.jpg").write_bytes(b"no photo")
    (tmp_path / "gone.jpg").symlink_to("nowhere.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")
    assert main(["search", str(tmp_path), "--duplicates"]) == 1
    output = capsys.readouterr()
    assert output.out == "cat.png\nsmall.jpg\n"
    assert "broken.jpg" in output.err and "no duplicates" not in output.err
    assert "gone.jpg: a link to a file that is not there\n" in output.err
    assert "pipe.jpg: not a regular file\n" in output.err
    (tmp_path / "small.jpg").unlink()
    assert main(["search", str(tmp_path), "--duplicates"]) == 1
    assert capsys.readouterr().err.endswith("captioner: no duplicates were found in 4 photos\n")
