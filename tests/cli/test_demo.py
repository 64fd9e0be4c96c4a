"""`captioner demo` as a process: it prints where the page is, and ends on Ctrl-C."""

import argparse
import io
import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pillow_heif
import pytest
from PIL import Image
from support.browser import launch_browser, new_page
from support.patience import PATIENCE_S, wait_until
from support.processes import child_environment

from captioner.cli.commands import demo
from captioner.cli.main import main
from captioner.model.installed import choose

EXAMPLES = Path(__file__).parents[2] / "examples"
TYPE = {"Content-Type": "application/octet-stream"}


def test_the_model_is_the_one_that_was_chosen(tiny_bundle, tmp_path):
    parser = argparse.ArgumentParser()
    demo.add_parser(parser.add_subparsers())
    assert demo.Request.read(parser.parse_args(["demo"])).bundle is None
    choose(str(tiny_bundle))
    assert demo.Request.read(parser.parse_args(["demo"])).bundle == tiny_bundle
    other = demo.Request.read(parser.parse_args(["demo", "--model", str(tmp_path)]))
    assert other.bundle == tmp_path


def test_the_page_is_served_until_it_is_interrupted():
    command = [sys.executable, "-m", "captioner", "demo", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().split()[0]
            assert url.startswith("http://127.0.0.1:")
            assert "Captioner" in httpx.get(url, timeout=PATIENCE_S).text
            assert httpx.get(f"{url}readyz", timeout=PATIENCE_S).status_code == 200
            foreign = httpx.get(url, headers={"host": "evil.example"}, timeout=PATIENCE_S)
            assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "FOREIGN_ORIGIN")
            heic = io.BytesIO()
            pillow_heif.from_pillow(Image.new("RGB", (64, 64), "red")).save(heic)
            answer = httpx.post(f"{url}v1/caption", content=heic.getvalue(), headers=TYPE, timeout=PATIENCE_S)
            assert answer.status_code == 200, answer.text
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def test_a_gallery_that_keeps_decisions_by_itself(tiny_bundle, tmp_path):
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(EXAMPLES / "cat.jpg", tmp_path / name)
    corrections = tmp_path / "corrections.jsonl"
    earlier = {"image": "b.jpg", "caption": "a person's words", "status": "edited"}
    corrections.write_text(json.dumps(earlier))
    command = [sys.executable, "-m", "captioner", "demo", str(tmp_path), "--port", "0", "--no-browser"]
    command += ["--model", str(tiny_bundle), "--device", "cpu"]

    def kept() -> list[dict]:
        return [json.loads(line) for line in corrections.read_text().splitlines()]

    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as process,
        launch_browser() as browser,
    ):
        try:
            assert process.stdout
            url = process.stdout.readline().split()[0]
            page = new_page(browser)
            page.goto(url)
            page.get_by_text("a person's words").wait_for()
            page.locator(".card").first.click()
            page.wait_for_selector(".word")
            page.keyboard.press("r")
            wait_until(lambda: len(kept()) == 2)
            assert kept()[0] == earlier
            assert (kept()[1]["image"], kept()[1]["status"]) == ("a.jpg", "rejected")
            page.keyboard.press("u")
            wait_until(lambda: len(kept()) == 1)
            page.keyboard.press("e")
            page.keyboard.type("my cat")
            page.keyboard.press("Enter")
            wait_until(lambda: len(kept()) == 2)
            page.reload()
            page.get_by_text("my cat").wait_for()
            for headers, body, status in (
                ({"origin": "https://evil.example"}, "[]", 403),
                ({"sec-fetch-site": "cross-site"}, "[]", 403),
                ({"host": "evil.example"}, "[]", 403),
                ({}, "no list", 400),
                ({}, '[{"image": "a.jpg", "caption": "x", "status": "nonsense"}]', 400),
                ({}, r'[{"image": "a.jpg", "caption": "\udce9", "status": "edited"}]', 200),
                ({}, '[{"image": "a.jpg"}]', 200),  # taken back
            ):
                answer = httpx.post(f"{url}decisions", content=body, headers=headers, timeout=PATIENCE_S)
                assert answer.status_code == status, answer.text
                assert httpx.get(f"{url}decisions", timeout=PATIENCE_S).status_code == 200
            assert kept() == [earlier]
            read = httpx.get(url, headers={"host": "evil.example"}, timeout=PATIENCE_S)
            assert read.status_code == 403
            assert (
                httpx.get(f"{url}gallery.files/../../corrections.jsonl", timeout=PATIENCE_S).status_code
                == 404
            )
        finally:
            process.terminate()


def heed_signals() -> None:
    """In a process that was begun by one that ignores them."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("moment", "numbers", "status"),
    [
        ("captioning", [signal.SIGTERM, signal.SIGHUP], {143, 129}),
        ("captioning", [signal.SIGINT, signal.SIGINT], {130}),
        ("serving", [signal.SIGHUP], {0}),
        ("serving", [signal.SIGINT, signal.SIGTERM], {0, 130, 143}),
    ],
)
def test_copies_of_photos_go_with_the_command(tiny_bundle, tmp_path, moment, numbers, status):
    photos, temporary = tmp_path / "photos", tmp_path / "tmp"
    temporary.mkdir()
    photos.mkdir()
    shutil.copy(EXAMPLES / "cat.jpg", photos / "0.jpg")
    for number in range(1, 4 if moment == "serving" else 400):
        (photos / f"{number}.jpg").hardlink_to(photos / "0.jpg")
    command = [sys.executable, "-m", "captioner", "demo", str(photos), "--port", "0", "--no-browser"]
    command += ["--model", str(tiny_bundle), "--device", "cpu"]
    env = {**child_environment(), "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=env, preexec_fn=heed_signals
    ) as process:
        try:
            if moment == "serving":
                assert process.stdout and process.stdout.readline()
            wait_until(lambda: any(temporary.rglob("photos/*.jpg")))
            for number in numbers:
                process.send_signal(number)
            assert process.wait(PATIENCE_S) in status
        finally:
            process.kill()
    assert not any(temporary.iterdir())


def test_a_folder_that_cannot_hold_decisions(tmp_path, capsys):
    (tmp_path / "corrections.jsonl").symlink_to(tmp_path / "nowhere" / "corrections.jsonl")
    assert main(["demo", str(tmp_path), "--no-browser", "--port", "0"]) == 2
    assert "; --corrections FILE keeps decisions elsewhere" in capsys.readouterr().err


def test_a_port_that_is_taken(tiny_bundle):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = ["demo", "--port", str(port), "--no-browser", "--model", str(tiny_bundle)]
        done = subprocess.run(
            [sys.executable, "-m", "captioner", *command],
            capture_output=True,
            text=True,
            env=child_environment(),
        )
    reason = f"cannot serve HTTP on 127.0.0.1:{port}: Address already in use; --port 0 takes a free port"
    assert (done.returncode, done.stderr) == (2, f"captioner: {reason}\n")
