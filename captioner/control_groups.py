"""Linux's control groups, by which containers, systemd and schedulers of clusters limit cores and memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
"""Names the groups of this process, a line for each hierarchy: NUMBER:CONTROLLERS:PATH."""


def folders(controller: str) -> Iterator[Path]:
    """The folders that may hold the limits of a controller ("cpu", "memory"): those of this process's own
    group and of the groups around it, in both versions of control groups. A process is bound by all of them.
    """
    for root, path in _own_groups(controller):
        group = root / path.strip("/")
        yield from (group, *(folder for folder in group.parents if folder.is_relative_to(root)))
    # The path may be that of the host, where a container sees its own group as the root.
    yield from (ROOT, ROOT / controller)


def _own_groups(controller: str) -> Iterator[tuple[Path, str]]:
    lines = []
    with suppress(OSError):
        lines = OWN.read_text(errors="replace").splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if ".." in path.split("/"):  # the group is outside of what this process sees
            continue
        if not controllers:
            yield from ((ROOT, path), (ROOT / "unified", path))
        elif controller in controllers.split(","):
            yield ROOT / controller, path
