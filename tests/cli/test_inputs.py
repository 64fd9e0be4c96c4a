"""What people name as an image: folders, URLs, several photos, folders that fill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.patience import PATIENCE_S, wait_until

from captioner.cli.main import main
from captioner.errors import ImageError
from captioner.images.fetch import Fetch, fetch

EXAMPLES = Path(__file__).parents[2] / "examples"
CAT = EXAMPLES / "cat.jpg"


@pytest.fixture
def run(tiny_bundle: Path):
    """Runs a command in this process; returns its exit status."""
    model = ["--model", str(tiny_bundle), "--device", "cpu"]
    return lambda command, *arguments: main([command, *map(str, arguments), *model])


@pytest.fixture
def web(monkeypatch) -> Iterator[str]:
    """The address of a web server on this machine, which for once counts as public."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            content = CAT.read_bytes()
            if path.startswith("/to/"):
                self.send_response(302)
                self.send_header("Location", path.removeprefix("/to/").replace("%3A", ":"))
            elif path == "/cat.jpg":
                self.send_response(200)
            else:
                self.send_response(404)
            self.send_header("Content-Length", str(len(content) if path == "/cat.jpg" else 0))
            self.end_headers()
            if path == "/cat.jpg":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr("captioner.images.fetch._is_public", lambda address: address == "127.0.0.1")
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_folder_is_captioned_when_asked(run, tmp_path, capsys) -> None:
    (tmp_path / "b").mkdir()
    for name in ("z.jpg", "b/a.jpg"):
        shutil.copy(CAT, tmp_path / name)
    assert run("caption", tmp_path, CAT) == 1
    assert "is a folder; use --recursive to print its captions" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert run("caption", tmp_path / "empty", CAT, "--recursive") == 1
    output, errors = capsys.readouterr()
    assert output.startswith(f"{CAT}\t")
    assert errors == f"captioner: {tmp_path / 'empty'}: there are no images in this folder\n"
    assert run("caption", tmp_path, CAT, "--recursive") == 0
    names = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [str(tmp_path / "b/a.jpg"), str(tmp_path / "z.jpg"), str(CAT)]


@pytest.mark.parametrize("command", ["caption", "overlay", "gallery", "demo"])
def test_an_archive_is_for_a_batch(run, tmp_path, capsys, command) -> None:
    archive, out = shutil.make_archive(str(tmp_path / "ph"), "zip", EXAMPLES), tmp_path / "out.html"
    output = [] if command in ("caption", "demo") else ["-o", out]
    assert run(command, archive, *output) == (1 if command in ("caption", "overlay") else 2)
    said = f"captioner: {archive}: is an archive; captioner batch captions archives\n"
    assert capsys.readouterr().err == said


def test_a_folder_that_cannot_be_read_is_one_failure(run, tmp_path, capsys, monkeypatch) -> None:
    locked, scandir = tmp_path / "locked", os.scandir
    locked.mkdir()
    shutil.copy(CAT, tmp_path / "z.jpg")

    def refuse(path: object) -> object:
        if Path(os.fsdecode(path)) == locked:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for named, captioned in (((locked, CAT), CAT), ((tmp_path,), tmp_path / "z.jpg")):
        assert run("caption", *named, "--recursive") == 1
        output, errors = capsys.readouterr()
        assert output.startswith(f"{captioned}\t")
        assert errors == f"captioner: {locked}: this folder: Permission denied\n"


def test_a_pipe_in_a_folder_is_not_read(run, tmp_path, capsys) -> None:
    os.mkfifo(tmp_path / "a.jpg")  # opening it would wait for a writer
    shutil.copy(CAT, tmp_path / "b.jpg")
    assert run("caption", tmp_path, "--recursive") == 1
    output, errors = capsys.readouterr()
    assert output.startswith(f"{tmp_path / 'b.jpg'}\t")
    assert errors == f"captioner: {tmp_path / 'a.jpg'}: not a regular file\n"


def test_a_list_on_stdin_needs_its_flag(run, tmp_path, capsys) -> None:
    assert run("batch", "-", "-o", tmp_path / "out.jsonl") == 2
    assert "--files-from - reads a list of images from stdin" in capsys.readouterr().err


def test_stdin_that_is_closed(run, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as Python does after <&-
    assert run("caption", "-", CAT) == 1
    output, errors = capsys.readouterr()
    assert (output.count("\n"), errors) == (1, "captioner: -: stdin is closed\n")
    assert run("batch", "--files-from", "-", "-o", tmp_path / "out.jsonl") == 2
    assert run("mcp", tmp_path) == 2
    assert capsys.readouterr().err.count("stdin is closed") == 2


def test_an_object_in_a_store_is_for_a_batch(run, capsys) -> None:
    for allowed in ((), ("--allow-urls",)):
        assert run("caption", "s3://bucket/cat.jpg", *allowed) == 1
        assert "not an http or https URL; batch --engine ray reads" in capsys.readouterr().err


def test_urls_are_fetched_when_allowed(run, web, capsys, tmp_path) -> None:
    assert run("caption", f"{web}/cat.jpg", CAT) == 1
    output, errors = capsys.readouterr()
    assert "is a URL; --allow-urls fetches" in errors and output.startswith(str(CAT))
    said = output.split("\t")[1]
    assert run("caption", "--allow-urls", f"{web}/to//cat.jpg", f"{web}/nothing", f"{web}/cat.jpg?x=1") == 1
    output, errors = capsys.readouterr()
    assert errors == f"captioner: {web}/nothing: cannot be fetched: the server answers 404\n"
    assert [line.split("\t")[1] for line in output.splitlines()] == [said.strip()] * 2
    out = tmp_path / "{stem}.png"
    assert run("overlay", "--allow-urls", f"{web}/cat.jpg?size=1", "-o", out) == 0
    assert (tmp_path / "cat.png").is_file()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/to/http://192.168.0.1/", "192.168.0.1 is not a public address"),
        ("/to/file:///etc/passwd", "only http and https"),
        ("/to//to//to//to//to//to//to//cat.jpg", "more than 5 redirects"),
    ],
)
def test_redirects_lead_nowhere_else(web, path, reason) -> None:
    with pytest.raises(ImageError, match=reason):
        fetch(web + path, 10**6)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://127.0.0.1:9/",
            "http://localhost/",
            "http://[::1]/",
            "http://10.0.0.1/",
            "http://169.254.169.254/",
        ),
        *("http://[::ffff:127.0.0.1]/", "http://0.0.0.0/", "http://224.0.0.1/", "http://[fe80::1]/"),
        "http://168.63.129.16/machine?comp=goalstate",
        *("http://[64:ff9b::7f00:1]/", "http://[64:ff9b:1::a00:1]/", "http://[2002:a9fe:a9fe::1]/"),
        *("http://[::127.0.0.1]/", "http://[fec0::1]/", "http://[2001:0:7f00:1::]/", "http://192.0.0.8/"),
    ],
)
def test_private_addresses_are_never_reached(url) -> None:
    with pytest.raises(ImageError, match="is not a public address"):
        fetch(url, 10**6)


def test_a_path_outside_ascii_is_escaped(web) -> None:
    for path in ("/to//cät 1.jpg", "/to//c%C3%A4t%201.jpg"):
        with pytest.raises(ImageError, match="the server answers 404"):
            fetch(web + path, 10**6)


def test_a_fetch_is_bounded(web) -> None:
    with pytest.raises(ImageError, match="more bytes than the limit of 1000"):
        fetch(f"{web}/cat.jpg", 1000)
    with pytest.raises(ImageError, match="it takes too long"):
        fetch(f"{web}/cat.jpg", 10**6, timeout_s=0)
    for url in ("ftp://example.org/a.jpg", "http://", "http://a:b/"):
        with pytest.raises(ImageError, match="cannot be fetched"):
            fetch(url, 1000)


@pytest.mark.parametrize("place", ["s3://bucket/photos", "https://example.org/photos"])
def test_a_batch_of_urls_says_what_to_do_instead(run, place, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("batch", place, "-o", "out.csv") == 2
    assert f"captioner: {place} is not a path: " in capsys.readouterr().err
    assert run("batch", EXAMPLES, "-o", place) == 2
    assert list(tmp_path.iterdir()) == []


def test_overlays_of_several_photos(run, tmp_path, capsys) -> None:
    photos = (CAT, EXAMPLES / "coffee.jpg", tmp_path / "missing.jpg")
    assert run("overlay", *photos, "-o", tmp_path / "all.png") == 2
    assert "put {stem} into the name" in capsys.readouterr().err
    assert run("overlay", *photos, "-o", "overlays/") == 2
    assert "as in overlays/{stem}.png" in capsys.readouterr().err
    assert run("overlay", *photos, CAT, "-o", tmp_path / "new" / "of-{stem}.png") == 1
    output, errors = capsys.readouterr()
    assert [line.split("\t")[0] for line in output.splitlines()] == [str(CAT), str(photos[1])]
    assert "missing.jpg: No such file" in errors and "of an earlier photo of the same name" in errors
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["of-cat.png", "of-coffee.png"]


def test_quiet_tells_of_failures_only(run, tmp_path, capsys) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    shutil.copy(CAT, root)
    (root / "broken.jpg").write_bytes(b"")
    for _ in range(2):
        assert run("batch", root, "-o", tmp_path / "out.jsonl", "--quiet") == 1
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("captioner: broken.jpg: the file is empty")


def test_a_watched_folder_is_captioned_as_it_fills(run, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("captioner.cli.commands.batch.here.WATCH_EVERY_S", 0.05)
    root, out = tmp_path / "photos", tmp_path / "out.jsonl"
    root.mkdir()

    def fill() -> None:
        for name in ("b.jpg", "a.jpg"):
            shutil.copy(CAT, tmp_path / name)
            (tmp_path / name).rename(root / name)  # whole at once
            wait_until(lambda name=name: out.exists() and f'"{name}"' in out.read_text())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=fill, daemon=True).start()
    assert run("batch", root, "-o", out, "--watch") == 0
    assert len(out.read_text().splitlines()) == 2
    assert capsys.readouterr().err.count("in all, 0 of them failed") in (2, 3)


def test_watching_needs_an_output_that_knows_what_is_done(run, tmp_path, capsys) -> None:
    shutil.copy(CAT, tmp_path)
    assert run("batch", tmp_path, "-o", "/dev/stdout", "--format", "jsonl", "--watch") == 2
    out, err = capsys.readouterr()
    assert not out and "--watch needs a file or folder as OUT" in err


def test_a_watched_folder_may_lose_photos_and_begin_empty(run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("captioner.cli.commands.batch.here.WATCH_EVERY_S", 0.05)
    root, out, page = tmp_path / "photos", tmp_path / "out.jsonl", tmp_path / "page.html"
    root.mkdir()

    def names() -> list[str]:
        return [json.loads(line)["image"] for line in out.read_text().splitlines()] if out.exists() else []

    def change() -> None:
        wait_until(out.exists)
        for name in ("a.jpg", "b.jpg"):
            shutil.copy(CAT, tmp_path / name)
            (tmp_path / name).rename(root / name)
        wait_until(lambda: names() == ["a.jpg", "b.jpg"] and page.exists())
        (root / "a.jpg").unlink()
        wait_until(lambda: names() == ["b.jpg"])
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=change, daemon=True)
    thread.start()
    assert run("batch", root, "-o", out, "--watch", "--attention", "--gallery", page) == 0
    thread.join()
    assert names() == ["b.jpg"] and not list(tmp_path.glob("*.partial"))


def test_a_fetch_tries_all_addresses(web, monkeypatch) -> None:
    port = int(web.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.9", port))
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.9", "127.0.0.1")]
    monkeypatch.setattr("captioner.images.fetch.socket.getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr("captioner.images.fetch._is_public", lambda _: True)
    assert fetch(f"{web}/cat.jpg", 10**6) == CAT.read_bytes()


def test_the_error_of_a_fetch_is_that_of_the_first_address(monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    # The system has addresses that it cannot reach, such as IPv6 without a route, last.
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", port, 0, 0)),
    ]
    monkeypatch.setattr("captioner.images.fetch.socket.getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr("captioner.images.fetch._is_public", lambda _: True)
    with pytest.raises(ImageError, match=r"[Rr]efused"):
        fetch(f"http://photos.example:{port}/cat.jpg", 10**6)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_fetch_can_be_stopped(monkeypatch, scheme) -> None:
    monkeypatch.setattr("captioner.images.fetch._is_public", lambda _: True)
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        one = Fetch(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/", 10**6, timeout_s=PATIENCE_S)
        running = pool.submit(one.run)
        connection, _ = silent.accept()
        with connection:
            connection.recv(1)
            one.stop()
            with pytest.raises(ImageError):
                running.result(PATIENCE_S)


def test_a_fetch_that_is_cut_short_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr("captioner.images.fetch._is_public", lambda _: True)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        running = pool.submit(fetch, f"http://127.0.0.1:{listener.getsockname()[1]}/", 10**6)
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + bytes(500))
        with pytest.raises(ImageError, match="the connection ended before the whole arrived"):
            running.result(5)


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\u3002.com"])
def test_a_url_with_no_name_of_a_host_is_said(host: str) -> None:
    with pytest.raises(ImageError, match="not a name that a host can have"):
        fetch(f"https://{host}/", 10**6)


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.1 200 OK\r\nX-", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["head", "body"]
)
def test_a_server_that_sends_a_byte_now_and_then_is_cut(monkeypatch, begin) -> None:
    monkeypatch.setattr("captioner.images.fetch._is_public", lambda _: True)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.sendall(begin)
                while True:
                    connection.sendall(b"a")
                    time.sleep(0.1)

        threading.Thread(target=drip, daemon=True).start()
        started = time.monotonic()
        with pytest.raises(ImageError, match="it takes too long"):
            fetch(f"http://127.0.0.1:{listener.getsockname()[1]}/", 10**6, timeout_s=0.5)
        assert time.monotonic() - started < PATIENCE_S / 4
