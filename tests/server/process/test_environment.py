"""Places and variables that are not the server's own choice."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import PATIENCE_S
from support.processes import FAKE_SERVER, ServerProcess, server_process

from captioner_server import probe

ROOT = Path(__file__).parents[3]


@pytest.fixture
def serve(tiny_bundle: Path) -> list[str]:
    """The command of a server on a free port."""
    flags = ["--device", "cpu", "--model", str(tiny_bundle), "--lame-duck-s", "0", "--log-format", "json"]
    return [sys.executable, "-m", "captioner", "serve", *flags]


def test_variables_of_other_programs_do_not_matter(
    serve: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "theirs"))
    monkeypatch.setenv("WEB_CONCURRENCY", "auto")
    monkeypatch.setenv("CAPTIONER_PORT", "tcp://10.0.0.1:50051")
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with_ports = ["--host", "::1", "--http-port", "0", "--metrics-port", "0"]
    server = ServerProcess([*serve, *with_ports, "--config", _file(tmp_path, "port = 0")])
    address = server.wait_for("listening")["address"]
    server.wait_for("serving")
    assert address.startswith("[::1]:")
    assert probe.main([address]) == 0
    server.tell()
    assert server.end() == 0, "".join(server.lines)
    assert list((tmp_path / "theirs").iterdir()) == []


def test_a_server_listens_on_a_socket_of_this_machine(tmp_path: Path) -> None:
    place = f"unix:{tmp_path}/captioner.sock"
    with server_process(host=place) as server:
        assert server.address == place
        assert [path.name for path in tmp_path.iterdir()] == ["captioner.sock"]
        assert probe.main([place]) == 0
        # gRPC itself would take the socket away, and remove it at its end.
        second = ServerProcess([sys.executable, str(FAKE_SERVER), "0", f"host={place!r}"])
        assert second.end() == 2
        assert f"cannot listen on {place}: another server does" in "".join(second.lines)
        assert probe.main([place]) == 0
        server.process.kill()
        server.end()
    with server_process(host=place):  # what a killed server leaves is in nobody's way
        assert probe.main([place]) == 0


def test_a_model_is_loaded_in_little_address_space(tiny_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9))

    photos = ["batch", str(ROOT / "examples"), "-o", str(tmp_path / "captions.jsonl")]
    done = subprocess.run(
        [sys.executable, "-m", "captioner", *photos, "--model", str(tiny_bundle), "--device", "cpu"],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="it takes root")
def test_images_are_decoded_where_proc_is_read_only() -> None:
    photo = ROOT / "examples" / "cat.jpg"
    decode = (
        "from captioner.images.preparation import Preparation;"
        "from captioner.images.workers import DecodeWorkers;"
        f"print(DecodeWorkers(Preparation(64)).load(open({str(photo)!r}, 'rb').read()).shape)"
    )
    script = f'mount -o remount,ro,bind /proc && exec "{sys.executable}" -c "$0"'
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script, decode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("this machine does not allow another /proc")
    assert done.stdout.strip() == "(64, 64, 3)", done.stderr


def _file(folder: Path, text: str) -> str:
    path = folder / "server.toml"
    path.write_text(text)
    return str(path)
