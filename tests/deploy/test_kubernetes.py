"""Manifests against the schemas of the Kubernetes API, as kustomize would build them."""

import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from captioner.cli.parser import build_parser
from captioner_server.configuration.config import resolve
from captioner_server.configuration.process_options import ProcessOptions
from captioner_server.options import ServerOptions

KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
BASE = KUBERNETES / "base"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def merge(base: Any, patch: Any) -> Any:
    """A strategic merge patch: mappings merge, null deletes, lists of named items merge by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = {key: value for key, value in base.items() if patch.get(key, value) is not None}
        for key, value in patch.items():
            if value is not None:
                merged[key] = merge(base.get(key), value)
        return merged
    if isinstance(base, list) and isinstance(patch, list) and all("name" in item for item in [*base, *patch]):
        by_name = {item["name"]: item for item in base}
        for item in patch:
            by_name[item["name"]] = merge(by_name.get(item["name"]), item)
        return list(by_name.values())
    return copy.deepcopy(patch)


def patches(folder: Path) -> Iterator[Any]:
    for patch in read(folder / "kustomization.yaml")["patches"]:
        yield read(folder / patch["path"])


def variants() -> dict[str, Any]:
    """The deployment of each overlay, alone and with TLS."""
    found = {}
    for overlay in ("cpu", "gpu"):
        deployment = read(BASE / "deployment.yaml")
        for patch in patches(KUBERNETES / "overlays" / overlay):
            assert patch["metadata"]["name"] == deployment["metadata"]["name"]
            deployment = merge(deployment, patch)
        found[overlay] = deployment
        for patch in patches(KUBERNETES / "components" / "tls"):
            deployment = merge(deployment, patch)
        found[f"{overlay} with TLS"] = deployment
    return found


def check_schema(resource: Any, folder: Path) -> None:
    path = folder / "resource.yaml"
    path.write_text(yaml.safe_dump(resource))
    command = [Path(sys.executable).with_name("kubernetes-validate"), "--strict", "--quiet", path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", read(BASE / "kustomization.yaml")["resources"])
def test_each_resource_follows_its_schema(name, tmp_path) -> None:
    check_schema(read(BASE / name), tmp_path)


@pytest.mark.parametrize("variant", variants())
def test_each_overlay_follows_the_schema_and_is_hardened(variant, tmp_path) -> None:
    deployment = variants()[variant]
    check_schema(deployment, tmp_path)
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert "memory" in container["resources"]["limits"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        kinds = {"grpc", "exec", "tcpSocket"} & set(container[probe])
        assert len(kinds) == 1, f"{probe} must have one kind of question"


@pytest.mark.parametrize("variant", variants())
def test_the_server_accepts_its_settings_and_ends_in_time(variant) -> None:
    pod = variants()[variant]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    config = resolve({}, environment, BASE / "server.toml")
    assert all(
        config.sources[name.removeprefix("CAPTIONER_").lower()] == "environment" for name in environment
    )
    options = config.make(ServerOptions)
    config.make(ProcessOptions)
    lame_duck_s = getattr(options, "lame_duck_s", 5.0)
    assert pod["terminationGracePeriodSeconds"] > options.grace_s + lame_duck_s
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": options.port, "metrics": options.metrics_port}


def test_everything_selects_the_same_pods() -> None:
    labels = read(BASE / "deployment.yaml")["spec"]["template"]["metadata"]["labels"]
    assert read(BASE / "deployment.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert read(BASE / "service.yaml")["spec"]["selector"] == labels
    assert read(BASE / "disruption.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert read(BASE / "network.yaml")["spec"]["podSelector"]["matchLabels"] == labels
    target = read(BASE / "autoscaler.yaml")["spec"]["scaleTargetRef"]
    assert target == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "captioner"}


RAY_JOB = read(KUBERNETES / "ray" / "job.yaml")
RAY_FIELDS = {
    "job": "backoffLimit entrypoint rayClusterSpec shutdownAfterJobFinishes ttlSecondsAfterFinished",
    "cluster": "headGroupSpec workerGroupSpecs",
    "head": "rayStartParams template",
    "workers": "groupName maxReplicas minReplicas rayStartParams replicas template",
}
"""Fields of KubeRay's API ray.io/v1 that the job uses; no registry has its schemas."""


def test_the_ray_job_has_fields_of_kuberay_and_valid_pods(tmp_path) -> None:
    assert (RAY_JOB["apiVersion"], RAY_JOB["kind"]) == ("ray.io/v1", "RayJob")
    cluster = RAY_JOB["spec"]["rayClusterSpec"]
    [workers] = cluster["workerGroupSpecs"]
    head = cluster["headGroupSpec"]
    parts = {"job": RAY_JOB["spec"], "cluster": cluster, "head": head, "workers": workers}
    assert {name: " ".join(sorted(part)) for name, part in parts.items()} == RAY_FIELDS
    for group in (head, workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, **group["template"]}
        check_schema(pod, tmp_path)
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        [container] = pod["spec"]["containers"]
        assert "memory" in container["resources"]["limits"]


def test_the_ray_job_runs_a_command_that_fits_its_workers() -> None:
    command, _, rest = RAY_JOB["spec"]["entrypoint"].partition(" || ")
    assert rest == "test $? -eq 1"
    program, *arguments = command.split()
    args = build_parser({"batch"})[0].parse_args(arguments)
    assert (program, args.command, args.engine) == ("captioner", "batch", "ray")
    [workers] = RAY_JOB["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    [container] = workers["template"]["spec"]["containers"]
    cores = int(container["resources"]["limits"]["cpu"])
    assert workers["minReplicas"] == workers["replicas"] == workers["maxReplicas"]
    assert args.actors * args.cpus_per_actor == workers["replicas"] * cores
    assert cores % args.cpus_per_actor == 0
