"""Code generated for gRPC and Protobuf rejects, when it is imported, older versions of them than its own."""

from __future__ import annotations

import re

_CONFLICTS = {
    "grpcio": re.compile(
        r"grpc package installed is at version (?P<there>\S+), but the generated code in (?P<code>\S+)"
        r" depends on grpcio>=(?P<least>\S+)\. "
    ),
    "protobuf": re.compile(
        r"incompatible Protobuf Gencode/Runtime versions when loading (?P<code>\S+): gencode (?P<least>\S+)"
        r" runtime (?P<there>\S+)\. "
    ),
}
"""What the generated code says, by the package that is too old."""


def conflict(error: Exception) -> str | None:
    """Which packages conflict, and what to do; None if the error is of another kind."""
    for package, said in _CONFLICTS.items():
        if found := said.search(str(error)):
            least, there, newer = found["least"], found["there"], _distribution(found["code"])
            return (
                f"{newer} conflicts with {package} {there}: pip install '{package}>={least}',"
                f" or a version of {newer} that accepts {package} {there}"
            )
    return None


def _distribution(code: str) -> str:
    """The name by which pip knows the package with this file; that of the file if it is not known."""
    import importlib.metadata  # slow, and needed only here

    owners = set(importlib.metadata.packages_distributions().get(code.partition("/")[0], ()))
    return owners.pop() if len(owners) == 1 else code
