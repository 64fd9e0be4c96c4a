"""Two servers behind the real HAProxy, watched by the real Prometheus: load, restarts, a kill, an upgrade."""

import json
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from support import topology
from support.patience import PATIENCE_S, free_port, wait_until
from support.processes import ServerProcess, server_process
from support.serving import make_image

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_client import CaptionClient, ClientOptions

pytestmark = pytest.mark.skipif(
    not (topology.HAPROXY and topology.PROMETHEUS), reason="it takes haproxy and prometheus, of Debian"
)
CALLERS, PAUSE_S = 4, 0.05
"""Together below the 200 requests a second that HAProxy lets an address make."""
VARIABLES = {"$job": ".*", "$instance": ".*", "$__rate_interval": "1m"}


class Load:
    """Callers without retries of their own; `outcomes` counts codes, `models` the models that answered."""

    def __init__(self, address: str) -> None:
        self.outcomes: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(address, n)) for n in range(CALLERS)]

    def _call(self, address: str, seed: int) -> None:
        request = pb.CaptionRequest(image=make_image(seed))
        with grpc.insecure_channel(address, options=[("grpc.enable_retries", 0)]) as channel:
            stub = CaptionServiceStub(channel)
            while not self._stop.wait(PAUSE_S):
                try:
                    answer = stub.Caption(request, timeout=PATIENCE_S)
                    self.models[answer.caption.model.partition("@")[0]] += 1
                    self.outcomes["OK"] += 1
                except grpc.RpcError as error:
                    self.outcomes[f"{error.code().name}: {error.details()}"] += 1

    def wait_for(self, more: int) -> None:
        """Until so many more calls have been answered."""
        wanted = self.outcomes["OK"] + more
        wait_until(lambda: self.outcomes["OK"] >= wanted, f"{more} more answers")

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)


@contextmanager
def under_load(address: str) -> Iterator[Load]:
    load = Load(address)
    load.start()
    try:
        load.wait_for(20)
        yield load
    finally:
        load.stop()


@pytest.mark.timeout(1200)
def test_a_rolling_restart_and_a_kill_lose_nothing_and_are_seen(tmp_path) -> None:
    ports = [(free_port(), free_port(), free_port()) for _ in range(2)]
    with ExitStack() as stack:

        def start(number: int) -> ServerProcess:
            port, http_port, metrics_port = ports[number]
            # In the lame duck, HAProxy learns that the server is leaving.
            options = {"port": port, "http_port": http_port, "metrics_port": metrics_port, "lame_duck_s": 5.0}
            return stack.enter_context(server_process(0.002, **options))

        servers = [start(0), start(1)]
        address, metrics = stack.enter_context(topology.haproxy([one[:2] for one in ports], tmp_path))
        prometheus = stack.enter_context(topology.prometheus([one[2] for one in ports], tmp_path))
        with under_load(address) as load:
            for number in range(2):  # one after the other
                servers[number].tell()
                assert servers[number].end() == 0
                load.wait_for(20)
                servers[number] = start(number)
                instance = f"127.0.0.1:{ports[number][2]}"
                counted = f'sum(captioner_calls_total{{instance="{instance}",code="OK"}})'
                wait_until(
                    lambda counted=counted: prometheus.value(counted) > 5, "calls reach the new server"
                )
        assert set(load.outcomes) == {"OK"}, load.outcomes

        check_queries(prometheus)
        with under_load(address) as load:  # what a killed server had begun is sent to the other one
            servers[0].tell(signal.SIGKILL)
            wait_until(lambda: prometheus.query("up == 0"), "Prometheus misses it")
            load.wait_for(20)
        assert set(load.outcomes) == {"OK"}, load.outcomes
        assert "haproxy_backend_retry_warnings_total" in topology.fetch(metrics)
        wait_until(lambda: prometheus.query('ALERTS{alertname="CaptionerDown"}'), "the alert is pending")


def test_many_callers_at_once_lose_nothing(tmp_path) -> None:
    """More than a server takes on one connection (100), so that HAProxy holds some back."""
    request = pb.CaptionRequest(image=make_image(1))
    ports = free_port(), free_port()
    with server_process(port=ports[0], http_port=ports[1]), ExitStack() as stack:
        address, _ = stack.enter_context(topology.haproxy([ports], tmp_path))
        channel = stack.enter_context(grpc.insecure_channel(address, options=[("grpc.enable_retries", 0)]))
        calls = [CaptionServiceStub(channel).Caption.future(request, timeout=PATIENCE_S) for _ in range(250)]
        outcomes = Counter("OK" if call.exception() is None else call.details() for call in calls)
        assert outcomes == {"OK": 250}


def test_a_killed_server_with_many_calls_loses_none(tmp_path) -> None:
    """HAProxy sends small requests again that were not answered at all; our client sends the others again."""
    ports = [(free_port(), free_port()) for _ in range(2)]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(server_process(0.05, max_batch_size=1, port=port, http_port=http_port))
            for port, http_port in ports
        ]
        address, _ = stack.enter_context(topology.haproxy(ports, tmp_path))
        client = stack.enter_context(CaptionClient(address, ClientOptions(timeout_s=PATIENCE_S)))
        callers = stack.enter_context(ThreadPoolExecutor(60))
        images = [make_image(1), make_image(2, (300, 300))]  # of 6 KB and of 270 KB
        calls = [callers.submit(client.caption, images[number % 2]) for number in range(60)]
        wait_until(lambda: any(call.done() for call in calls))
        servers[0].tell(signal.SIGKILL)
        assert all(call.result(PATIENCE_S).text for call in calls)


@pytest.mark.timeout(1200)
def test_a_model_is_upgraded_under_load_with_evidence_and_a_bad_one_is_seen(tmp_path, tiny_bundle) -> None:
    """As docs/operations.md says: first as a shadow, then over the bundle that is served."""
    pytest.importorskip("onnxruntime")
    ports = [(free_port(), free_port(), free_port()) for _ in range(2)]
    new = rename(tiny_bundle, tmp_path / "new", "new")
    served = [rename(tiny_bundle, tmp_path / f"served{number}", "old") for number in range(2)]
    with ExitStack() as stack:
        servers = []
        for (port, http_port, metrics_port), bundle in zip(ports, served, strict=True):
            flags = ["--port", port, "--http-port", http_port, "--metrics-port", metrics_port]
            flags += ["--shadow", "next", "--shadow-share", 1]
            flags += [
                "--model",
                f"main={bundle}",
                "--model",
                f"next={new}",
                "--device",
                "cpu",
                "--threads",
                1,
            ]
            flags += ["--decode-workers", 1, "--max-batch-size", 4, "--watch-s", 0, "--log-format", "json"]
            servers.append(
                ServerProcess(
                    [sys.executable, "-m", "captioner", "serve", "--lame-duck-s", "0", *map(str, flags)]
                )
            )
            stack.callback(servers[-1].process.kill)
        for server in servers:
            server.wait_for("serving")
        address, _ = stack.enter_context(topology.haproxy([one[:2] for one in ports], tmp_path))
        prometheus = stack.enter_context(topology.prometheus([one[2] for one in ports], tmp_path))
        with under_load(address) as load:
            compared = 'min(captioner_shadow_images_total{outcome="same"})'
            wait_until(lambda: prometheus.value(compared) > 5, "the shadow of each server has evidence")
            assert set(load.models) == {"old"}
            upgrades = {"Shadow", "Reloads"}
            wait_until(lambda: not upgrades & set(empty_panels(prometheus)), "the panels show something")
            for server, bundle in zip(servers, served, strict=True):
                shutil.copytree(new, bundle, dirs_exist_ok=True)
                server.tell(signal.SIGHUP)
                server.wait_for("model replaced")
            loaded = 'count(captioner_model_info{name="main",model=~"new@.*"})'
            wait_until(lambda: prometheus.value(loaded) == 2, "both have the new model")
            load.models.clear()
            load.wait_for(20)
            assert set(load.models) <= {"old", "new"} and load.models["new"] > 10
            (served[0] / "decoder.onnx").write_bytes(b"torn")
            servers[0].tell(signal.SIGHUP)
            assert "decoder.onnx" in servers[0].wait_for("model failed")["reason"]
            alert = 'ALERTS{alertname="CaptionerReloadFailed",alertstate="firing"}'
            wait_until(lambda: prometheus.query(alert), "the alert fires")
            load.wait_for(20)
        assert set(load.outcomes) == {"OK"}, load.outcomes
        for server in servers:
            server.tell()
            assert server.end() == 0


def rename(bundle: Path, target: Path, name: str) -> Path:
    """A copy of a bundle with another name."""
    shutil.copytree(bundle, target)
    manifest = json.loads((target / "bundle.json").read_text())
    (target / "bundle.json").write_text(json.dumps(manifest | {"name": name}))
    return target


def check_queries(prometheus: topology.Prometheus) -> None:
    """Every rule is evaluated, and every query of the dashboard finds something."""
    wait_until(lambda: {rule["health"] for rule in prometheus.rules()} == {"ok"}, "all rules are evaluated")
    assert len(prometheus.rules()) > 15
    # Nothing has been dropped, refused or rejected, there is no shadow, and there may be no GPU.
    may_be_empty = {"Dropped images", "Errors by reason", "GPU memory", "Rejected", "Shadow"}
    wait_until(lambda: set(empty_panels(prometheus)) <= may_be_empty, "all panels show something")


def empty_panels(prometheus: topology.Prometheus) -> list[str]:
    dashboard = json.loads((topology.DEPLOY / "grafana" / "dashboards" / "captioner.json").read_text())
    empty = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            if not prometheus.query(expression):
                empty.append(panel["title"])
    return empty
