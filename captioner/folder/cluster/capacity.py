"""Whether a cluster answers, and how many actors it has room for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from captioner.errors import DeviceError, reason_of
from captioner.folder.cluster.options import RayOptions

_CONNECT_TIMEOUT_S = 10.0
_WATCH_S = 5.0


def check_reachable(address: str) -> None:
    """Raise `DeviceError` if nothing listens at HOST:PORT; Ray itself would take minutes to say so."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):  # "auto", "local"
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        reason = reason_of(error)
        raise DeviceError(f"no Ray answers at {address} (RAY_ADDRESS): {reason}") from None


def count_actors(resources: Mapping[str, float], settings: RayOptions) -> int:
    """The number of actors that fit. Ray would wait forever for resources that this machine lacks; a
    cluster may still grow. Raises `DeviceError` if none fits."""
    for kind, wanted in _wanted(settings).items():
        if (there := resources.get(kind, 0.0)) < wanted:
            flag = f"--{kind.lower()}s-per-actor {wanted:g}"
            raise DeviceError(f"Ray finds {there:g} {kind}s on this machine, too few for {flag}")
    return _count_room(resources, settings)


def _count_room(resources: Mapping[str, float], settings: RayOptions) -> int:
    """The number of actors that fit, whatever the nodes that they are on."""
    return min(int(resources.get(kind, 0.0) / wanted) for kind, wanted in _wanted(settings).items() if wanted)


def _wanted(settings: RayOptions) -> dict[str, float]:
    """Resources of an actor."""
    return {"CPU": settings.cpus_per_actor, "GPU": settings.gpus_per_actor}


@contextmanager
def watching(ray: Any, actors: int, settings: RayOptions, report: Callable[[str], None]) -> Iterator[None]:
    """Report when the cluster loses room for actors: Ray then waits for another node, without a word and
    without an end."""
    done = threading.Event()

    def watch() -> None:
        before = actors
        while not done.wait(_WATCH_S):
            try:
                room = min(actors, _count_room(ray.cluster_resources(), settings))
            except Exception:  # the cluster has gone, which ends the run
                return
            if room < before:
                report(
                    f"the cluster has room for {room} of {actors} actors; the run waits for another node "
                    "(or stop it, and resume with fewer --actors)"
                )
            before = room

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
