"""Clients beside what their process does: forks, pickles, and the proxy of a company."""

import asyncio
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import child_environment
from support.serving import RunningServer, make_image, serve

from captioner_client import AsyncCaptionClient, CaptionClient, ClientOptions, ServerError

_FORK = """
import os, signal, sys
from captioner_client import AsyncCaptionClient, CaptionClient, ClientOptions
from captioner.errors import CaptionerError

address, image, before, child = sys.argv[1], sys.stdin.buffer.read(), *sys.argv[2:]
make = lambda: CaptionClient(address, ClientOptions(timeout_s=30))
client = make()
words = None
if before == "used":
    client.caption(image)
if before == "iterating":
    words = client.stream(image)
    next(words)
if before == "closed":
    client.caption(image)
    client.close()
if os.fork() == 0:
    signal.alarm(60)
    try:
        client = make() if child == "new" else client
        print(client.caption(image).text, flush=True)
        client.close()
    except CaptionerError as error:
        print(type(error).__name__, error, flush=True)
        client.close()  # does not wait for a thread of the other process
        if words is not None:
            words.close()
    sys.exit(0)
_, status = os.wait()
print(status)
if before in ("used", "iterating"):
    print(client.caption(image).text)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve(FakeModel()) as running:
        yield running


@pytest.mark.parametrize(
    ("before", "child"),
    [("used", "same"), ("used", "new"), ("iterating", "same"), ("closed", "new"), ("unused", "same")],
)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_gets_captions_or_an_error(server: RunningServer, before: str, child: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORK, server.address, before, child],
        input=make_image(1),
        capture_output=True,
        timeout=PATIENCE_S,
        env=child_environment(),
    )
    in_child, status, *in_parent = done.stdout.decode().splitlines()
    assert int(status) == 0, signal.Signals(int(status) & 0x7F)
    if before == "unused":
        assert not in_child.startswith("ServerError")
    else:
        assert in_child.startswith("ServerError this process was forked from one that had used a client")
        assert "spawn" in in_child
    assert before not in ("used", "iterating") or in_parent  # the parent goes on


def test_clients_that_are_not_closed_leave_nothing_behind(server: RunningServer) -> None:
    def is_ended() -> bool:
        gc.collect()
        return not any(thread.name == "captioner-client" for thread in threading.enumerate())

    for _ in range(3):
        assert CaptionClient(server.address).caption(make_image(1)).text
    wait_until(is_ended)


def test_a_client_used_on_two_event_loops_says_so(server: RunningServer) -> None:
    client = AsyncCaptionClient(server.address)
    assert asyncio.run(client.caption(make_image(1))).text
    with pytest.raises(ServerError, match="used on another event loop: make one for each"):
        asyncio.run(client.caption(make_image(1)))


def test_a_pickled_client_connects_anew(server: RunningServer) -> None:
    with CaptionClient(server.address, ClientOptions(timeout_s=PATIENCE_S)) as client:
        text = client.caption(make_image(1)).text
        with pickle.loads(pickle.dumps(client)) as other:
            assert other.caption(make_image(1)).text == text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_servers_on_this_machine_need_no_proxy(
    server: RunningServer, host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    port = server.address.rpartition(":")[2]
    with CaptionClient(f"{host}:{port}", ClientOptions(timeout_s=PATIENCE_S, wait_s=0)) as client:
        assert client.get_model().name
