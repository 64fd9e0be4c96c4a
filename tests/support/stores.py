"""Object stores on this machine, as processes of their own: S3 by moto, Google's by its emulator."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from support.processes import child_environment

BUCKET = "bucket"


@contextmanager
def s3_server() -> Iterator[str]:
    """An empty bucket; yields its URI. The environment of this process leads there, as a user's does."""
    with _running("-m", "moto.server", "-H", "127.0.0.1", "-p") as address:
        settings = {
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        urllib.request.urlopen(urllib.request.Request(f"http://{address}/{BUCKET}", method="PUT"))
        with mock.patch.dict(os.environ, settings):
            yield f"s3://{BUCKET}"


@contextmanager
def gs_server() -> Iterator[str]:
    """An empty bucket; yields its URI, in which place of `{}` the path goes."""
    start = "import sys; from gcp_storage_emulator.__main__ import main; main(sys.argv[1:])"
    flags = ("start", "--host", "127.0.0.1", "--in-memory", "--default-bucket", BUCKET)
    with _running("-c", start, *flags, "--port") as address:
        yield f"gs://anonymous@{BUCKET}/{{}}?scheme=http&endpoint_override={address}&retry_limit_seconds=5"


@contextmanager
def _running(*arguments: str) -> Iterator[str]:
    """A server that takes its port as the last argument; yields HOST:PORT."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, *arguments, str(port)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=child_environment(), **silent)
    try:
        _wait_for(process, port)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"the server does not answer: {process.args}")
