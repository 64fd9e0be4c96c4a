"""Object stores on this machine, as processes of their own: S3 by moto, Google's by its emulator."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from support.patience import PATIENCE_S, free_port, wait_until
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
        yield f"gs://anonymous@{BUCKET}/{{}}?scheme=http&endpoint_override={address}&retry_limit_seconds=60"


@contextmanager
def _running(*arguments: str) -> Iterator[str]:
    """A server that takes its port as the last argument; yields HOST:PORT."""
    port = free_port()
    command = [sys.executable, *arguments, str(port)]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=child_environment(), **silent)
    try:
        wait_until(lambda: process.poll() is not None or _answers(port))
        assert process.poll() is None, f"the server has ended: {command}"
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
