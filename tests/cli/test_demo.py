"""`captioner demo` as a process: it prints where the page is, and ends on Ctrl-C."""

import io
import signal
import socket
import subprocess
import sys

import httpx
import pillow_heif
from PIL import Image
from support.patience import PATIENCE_S
from support.processes import child_environment

TYPE = {"Content-Type": "application/octet-stream"}


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
