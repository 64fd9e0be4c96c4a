"""The official MCP client against `captioner mcp`."""

import asyncio
import base64
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from support.disks import filled
from support.patience import PATIENCE_S
from support.processes import child_environment

from captioner.captioner import Captioner
from captioner.errors import DataError
from captioner.mcp.folders import AllowedFolders
from captioner.mcp.library import Library
from captioner.options import CaptionOptions
from captioner.overlay.styles import STYLES

mcp = pytest.importorskip("mcp")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "dogs").mkdir(parents=True)
    for number, name in enumerate(("a.png", "dogs/b.png")):
        Image.new("RGB", (40, 30), (90 * number, 80, 200)).save(folder / name)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing more")
    Image.new("RGB", (40, 30)).save(tmp_path / "secret.png")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "away").symlink_to(tmp_path)
    return folder


@pytest.fixture
def library(photos: Path, tiny_captioner: Captioner) -> Library:
    return Library(AllowedFolders([photos]), tiny_captioner, CaptionOptions(attention=False))


def call(library: Library, tool: str, **arguments: object):
    from captioner.mcp.tools import make_server

    async def talk():
        async with mcp.Client(make_server(library)) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(talk())


def test_a_photo_is_captioned_as_anywhere_else(library, photos, tiny_captioner) -> None:
    told = call(library, "caption_image", path="dogs/b.png").structured_content
    caption = tiny_captioner.caption(photos / "dogs/b.png")
    assert (told["path"], told["caption"]) == ("dogs/b.png", caption.text)
    assert told == call(library, "caption_image", path=str(photos / "dogs" / "b.png")).structured_content


def test_a_folder_is_captioned_with_what_fails_in_it(library, photos) -> None:
    told = call(library, "caption_folder").structured_content
    assert [photo["path"] for photo in told["photos"]] == ["a.png", "dogs/b.png"]
    assert (told["total"], list(told["failed"])) == (3, ["broken.jpg"])
    assert call(library, "caption_folder", folder="dogs").structured_content["total"] == 1
    assert call(library, "caption_folder", skip=2).structured_content["photos"][0]["path"] == "dogs/b.png"


def test_a_pipe_is_not_waited_for(library, photos) -> None:
    os.mkfifo(photos / "pipe.jpg")
    told = call(library, "caption_folder").structured_content
    assert (told["total"], told["failed"]["pipe.jpg"]) == (4, "not a regular file")
    for tool in ("caption_image", "overlay"):
        assert "pipe.jpg is neither a file" in call(library, tool, path="pipe.jpg").content[0].text
    assert call(library, "caption_image", path="a.png").structured_content["caption"]


@pytest.mark.parametrize("tool", ["caption_image", "overlay"])
def test_a_photo_that_becomes_another_file_is_not_read(library, photos, tmp_path, monkeypatch, tool) -> None:
    """Between the check of its name and its opening."""
    photo, find = photos / "dogs" / "b.png", library.folders.find

    def link() -> None:
        photo.unlink()
        photo.symlink_to(tmp_path / "secret.png")

    def pipe() -> None:
        photo.unlink()
        os.mkfifo(photo)

    def other_folder() -> None:
        photo.parent.rename(tmp_path / "dogs")
        photo.parent.symlink_to(tmp_path / "dogs")

    for exchange, reason in (
        (link, "no longer the file that was asked for"),
        (pipe, "not a regular file"),
        (other_folder, "no longer the file that was asked for"),
    ):
        photo.unlink(missing_ok=True)
        Image.new("RGB", (40, 30)).save(photo)

        def find_and_exchange(name: str, exchange=exchange) -> Path:
            path = find(name)
            exchange()
            return path

        monkeypatch.setattr(library.folders, "find", find_and_exchange)
        told = call(library, tool, path="dogs/b.png")
        assert told.is_error and reason in told.content[0].text


def test_names_that_are_not_utf_8_are_told_escaped(library, photos) -> None:
    (photos / "a.png").rename(photos / os.fsdecode(b"lat\xe9.png"))
    (photos / "broken.jpg").rename(photos / os.fsdecode(b"br\xe9.jpg"))
    told = call(library, "caption_folder").structured_content
    assert [photo["path"] for photo in told["photos"]] == ["dogs/b.png", "lat\\udce9.png"]
    assert list(told["failed"]) == ["br\\udce9.jpg"]
    words = told["photos"][1]["caption"]
    assert not call(library, "search_captions", words=words).is_error
    assert "\\ud800 is not below a folder" in call(library, "caption_image", path="\ud800").content[0].text


def test_captions_are_searched_by_their_words(library, tiny_captioner, photos) -> None:
    words = tiny_captioner.caption(photos / "a.png").text.split()
    told = call(library, "search_captions", words=" ".join(words[:2]).upper()).structured_content
    assert "a.png" in [photo["path"] for photo in told["photos"]]
    assert call(library, "search_captions", words="zeppelin").structured_content["total"] == 0
    assert call(library, "search_captions", words="!").is_error


def test_a_photo_is_captioned_again_only_after_a_change(library, photos, monkeypatch) -> None:
    asked, captioned = [], 0
    read, plain = library.folders.read, library.captioner.caption_each

    def read_photo(path):
        asked.append(path.name)
        return read(path)

    def caption_each(images, options=None):
        nonlocal captioned
        images = list(images)
        captioned += len(images)
        return plain(images, options)

    monkeypatch.setattr(library.folders, "read", read_photo)
    monkeypatch.setattr(
        library, "captioner", type("Counted", (), {"caption_each": staticmethod(caption_each)})
    )
    library.caption_folder(".")
    library.search("dog", ".")
    assert sorted(asked) == ["a.png", "b.png", "broken.jpg"]
    Image.new("RGB", (50, 50)).save(photos / "a.png")
    library.caption("a.png")
    assert asked[3:] == ["a.png"] and captioned == 4


def test_an_overlay_is_shown_and_written_beside_the_photos_only(library, photos) -> None:
    told = call(library, "overlay", path="a.png", output="dogs/a-map.png")
    text, picture = told.content
    shown = Image.open(io.BytesIO(base64.b64decode(picture.data)))
    assert picture.mime_type == "image/png" and shown.width == 1200
    assert text.text and (photos / "dogs/a-map.png").read_bytes() == base64.b64decode(picture.data)
    for place in ("dogs/a-map.png", "../b.png", "away/b.png", "no-folder/b.png", "", ".."):
        assert call(library, "overlay", path="a.png", output=place).is_error, place
    assert call(library, "overlay", path="broken.jpg").is_error


@pytest.mark.skipif("__import__('os').name != 'posix'", reason="mounts")
def test_a_full_disk_leaves_no_half_of_an_overlay(mount, tiny_captioner) -> None:
    disk = mount("-t", "tmpfs", "-o", "size=1m", "tmpfs")
    Image.new("RGB", (40, 30)).save(disk / "a.png")
    library = Library(AllowedFolders([disk]), tiny_captioner, CaptionOptions(attention=False))
    with filled(disk, 4096):
        told = call(library, "overlay", path="a.png", output="map.png")
        assert told.is_error and told.content[0].text.endswith("map.png: No space left on device")
    assert not call(library, "overlay", path="a.png", output="map.png").is_error


@pytest.mark.parametrize(
    "name", ["../secret.png", "link.png", "away/secret.png", "gone.png", "/etc/passwd", "x\0", "a" * 5000]
)
def test_what_lies_elsewhere_is_not_told_from_what_is_not_there(library, photos, name) -> None:
    told = call(library, "caption_image", path=name)
    assert told.is_error
    assert told.content[0].text.endswith(f"is not below a folder that may be used ({photos})")


def test_links_within_the_folders_are_followed(photos, tmp_path, tiny_captioner) -> None:
    (tmp_path / "by-link").symlink_to(photos)
    folders = AllowedFolders([tmp_path / "by-link"])
    (photos / "same.png").symlink_to(photos / "a.png")
    assert folders.name(folders.find("same.png")) == "a.png"
    with pytest.raises(DataError, match="no such folder"):
        AllowedFolders([photos / "a.png"])


def listed(library: Library):
    from captioner.mcp.tools import make_server

    async def talk():
        async with mcp.Client(make_server(library)) as client:
            return (await client.list_tools()).tools

    return asyncio.run(talk())


def test_tools_say_what_they_do(library) -> None:
    tools = {tool.name: tool for tool in listed(library)}
    assert set(tools) == {"caption_image", "caption_folder", "search_captions", "overlay"}
    assert all(tool.description and tool.output_schema for name, tool in tools.items() if name != "overlay")
    assert [name for name, tool in tools.items() if not tool.annotations.read_only_hint] == ["overlay"]


def test_a_style_that_is_registered_can_be_asked_for(library, photos, monkeypatch) -> None:
    monkeypatch.setitem(STYLES, "added", STYLES["contour"])
    [style] = [tool.input_schema["properties"]["style"] for tool in listed(library) if tool.name == "overlay"]
    assert style["enum"] == [*STYLES] and style["default"] == "panels"
    told = call(library, "overlay", path="a.png", style="glow")
    assert told.is_error and "style must be one of panels," in told.content[0].text


def command(photos: Path, bundle: Path) -> list[str]:
    return [sys.executable, "-m", "captioner", "mcp", str(photos), "--model", str(bundle), "--device", "cpu"]


def test_it_talks_on_stdin_and_stdout(photos, tiny_bundle) -> None:
    python, *arguments = command(photos, tiny_bundle)
    server = mcp.StdioServerParameters(command=python, args=arguments, env=child_environment())

    async def talk():
        async with mcp.Client(server) as client:
            return await client.call_tool("caption_image", {"path": "a.png"})

    assert asyncio.run(talk()).structured_content["caption"]


def test_it_talks_over_http_on_this_machine(photos, tiny_bundle) -> None:
    httpx = pytest.importorskip("httpx")
    http = [*command(photos, tiny_bundle), "--http-port", "0"]
    with subprocess.Popen(http, stderr=subprocess.PIPE, text=True, env=child_environment()) as server:
        try:
            url = next(found[0] for line in server.stderr if (found := re.search(r"http://\S+/mcp", line)))

            async def talk():
                async with mcp.Client(url, read_timeout_seconds=PATIENCE_S) as client:
                    return await client.call_tool("caption_image", {"path": "a.png"})

            assert asyncio.run(talk()).structured_content["caption"]
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            accept = {"accept": "application/json, text/event-stream"}
            rebound = httpx.post(
                url, json=body, headers={**accept, "host": "evil.example"}, timeout=PATIENCE_S
            )
            foreign = httpx.post(
                url, json=body, headers={**accept, "origin": "https://evil.example"}, timeout=PATIENCE_S
            )
            assert rebound.status_code in (400, 403, 421) and foreign.status_code in (400, 403)
        finally:
            server.terminate()


def test_a_folder_that_is_not_there_is_said(tiny_bundle) -> None:
    gone = subprocess.run(
        command(Path("gone"), tiny_bundle),
        capture_output=True,
        text=True,
        env={**os.environ, **child_environment()},
    )
    assert (gone.returncode, gone.stderr) == (2, "captioner: gone: there is no such folder\n")
