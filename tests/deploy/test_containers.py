"""The container files, as far as they can be checked without a container engine."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from captioner_server.configuration.config import resolve
from captioner_server.options import ServerOptions

ROOT = Path(__file__).resolve().parents[2]


def compose() -> list[str]:
    """Docker Compose 2 where it is there, else docker-compose."""
    docker = shutil.which("docker")
    if docker and not subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        return [docker, "compose"]
    if not shutil.which("docker-compose"):
        pytest.skip("neither docker compose nor docker-compose is installed")
    return ["docker-compose"]


@pytest.mark.parametrize(
    ("profile", "service"), [("", "captioner:cpu"), ("gpu", "captioner:gpu"), ("full", "haproxy")]
)
def test_each_profile_is_a_valid_composition(profile: str, service: str) -> None:
    flags = ["--profile", profile] if profile else []
    command = [*compose(), *flags, "config"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert service in done.stdout
    if profile == "gpu":
        assert "driver: nvidia" in done.stdout


def test_no_profile_opens_a_port_to_other_machines() -> None:
    command = [*compose(), "--profile", "gpu", "--profile", "full", "config"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    services = yaml.safe_load(done.stdout)["services"]
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == 9
    for port in ports:  # Compose 2 prints mappings, Compose 1 strings
        address = port["host_ip"] if isinstance(port, dict) else port.partition(":")[0]
        assert address == "127.0.0.1"
    for name in ("captioner", "captioner-gpu", "replica"):  # else the images refuse to serve plaintext
        assert services[name]["environment"]["CAPTIONER_INSECURE"] == "true"
    for name, service in services.items():
        assert service["read_only"], name
        assert service["mem_limit"] and service["cpus"] and service["pids_limit"], name


def test_logs_of_every_service_are_rotated() -> None:
    """Each call has a line: strangers could fill the disk."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert {name: service["logging"] for name, service in services.items()} == {
        name: {"driver": "local"} for name in services
    }


def test_tls_and_tokens_can_be_added() -> None:
    files = ["-f", "docker-compose.yml", "-f", "deploy/compose-tls.yml"]
    environment = {**os.environ, "CAPTIONER_SECRETS": "/etc/captioner", "CAPTIONER_BIND": "0.0.0.0"}
    command = [*compose(), *files, "config"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment, check=True
    )
    settings = yaml.safe_load(done.stdout)["services"]["captioner"]["environment"]
    options = resolve({}, {"CAPTIONER_HOST": "0.0.0.0", **settings}).make(ServerOptions)
    assert not options.insecure
    assert (options.tls_certificate, options.tls_key) == (Path("/secrets/tls.crt"), Path("/secrets/tls.key"))
    assert options.token_file == Path("/secrets/tokens")
    assert "/etc/captioner" in done.stdout and "/secrets" in done.stdout


def test_tls_can_be_added_to_haproxy_and_tokens_to_its_servers() -> None:
    files = ["-f", "docker-compose.yml", "-f", "deploy/haproxy/compose-tls.yml", "--profile", "full"]
    environment = {**os.environ, "CAPTIONER_SECRETS": "/etc/captioner", "CAPTIONER_FRONT_BIND": "0.0.0.0"}
    command = [*compose(), *files, "config"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment, check=True
    )
    services = yaml.safe_load(done.stdout)["services"]
    assert services["haproxy"]["environment"] == {"TLS_CERTIFICATE": "/secrets/tls.crt"}
    for name in ("captioner", "replica"):
        settings = services[name]["environment"]
        options = resolve({}, {"CAPTIONER_HOST": "0.0.0.0", **settings}).make(ServerOptions)
        assert options.insecure and options.token_file == Path("/secrets/tokens")
    ports = {name: str(service.get("ports")) for name, service in services.items()}
    assert [name for name, text in ports.items() if "0.0.0.0" in text] == ["haproxy"]
    assert all("/etc/captioner" in str(services[name]["volumes"]) for name in ("haproxy", "captioner"))


@pytest.mark.parametrize("added", ["deploy/compose-tls.yml", "deploy/haproxy/compose-tls.yml"])
def test_all_servers_of_a_composition_have_the_same_tokens(added: str) -> None:
    """HAProxy sends calls to each of them: one without tokens would answer strangers."""
    files = ["-f", "docker-compose.yml", "-f", added, "--profile", "gpu", "--profile", "full"]
    environment = {**os.environ, "CAPTIONER_SECRETS": "/etc/captioner"}
    done = subprocess.run(
        [*compose(), *files, "config"], cwd=ROOT, capture_output=True, text=True, env=environment, check=True
    )
    services = yaml.safe_load(done.stdout)["services"].values()
    servers = [each for each in services if "servers" in str(each.get("networks"))]
    assert len(servers) == 3
    for server in servers:
        assert server["environment"]["CAPTIONER_TOKEN_FILE"] == "/secrets/tokens"
        assert server["environment"] == servers[0]["environment"]
        assert server["volumes"] == servers[0]["volumes"]


def test_haproxy_has_a_place_for_every_server_of_the_autoscaler() -> None:
    text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text()
    places = [int(count) for count in re.findall(r"server-template \w+ (\d+)", text)]
    autoscaler = yaml.safe_load((ROOT / "deploy/kubernetes/base/autoscaler.yaml").read_text())
    assert len(places) == 2 and min(places) >= autoscaler["spec"]["maxReplicas"]


def test_every_image_can_be_pinned() -> None:
    pinned = dict(
        line.split("=", 1)
        for line in (ROOT / "deploy" / "images.env").read_text().splitlines()
        if line and not line.startswith("#")
    )
    composition = (ROOT / "docker-compose.yml").read_text()
    assert dict(re.findall(r"\$\{(\w+_IMAGE):-([^}]+)\}", composition)) == pinned


def test_the_dockerfiles_are_lint_free() -> None:
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    files = ["deploy/Dockerfile", "deploy/kubernetes/ray/Dockerfile"]
    done = subprocess.run([hadolint, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_serves_as_nobody_and_says_how_it_is() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    for instruction in ("USER 65532:65532", "HEALTHCHECK", "STOPSIGNAL SIGTERM"):
        assert instruction in text
    for line in text.splitlines():
        if line.startswith(("ENTRYPOINT", "CMD")):
            assert json.loads(line.partition(" ")[2])  # the form without a shell, which would swallow signals
    assert text.rstrip().rpartition("FROM ")[2].startswith("base AS cpu"), "the CPU is the default target"


class NoDuplicates(yaml.SafeLoader):
    """Docker Compose 2 and Kubernetes refuse a key that is given twice; PyYAML takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.value != "<<"]
        assert len(keys) == len(set(keys)), f"a key is given twice: {node.start_mark}"
        return super().construct_mapping(node, deep)


@pytest.mark.parametrize(
    "path", [ROOT / "docker-compose.yml", *sorted((ROOT / "deploy").rglob("*.y*ml"))], ids=lambda p: p.name
)
def test_no_key_is_given_twice(path: Path) -> None:
    assert list(yaml.load_all(path.read_text(), NoDuplicates))
