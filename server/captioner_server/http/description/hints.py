"""What to say of an address that is not there: which one was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

from captioner.errors import closest

_MEANT = {
    "POST /v1/caption": "caption captions classify describe detect image images infer inference invocations "
    "predict predictions upload",
    "POST /v1/chat/completions": "completions messages",
    "POST /api/generate": "generate",
    "POST /api/chat": "chat",
    "GET /api/tags": "models list",
    "GET /v1/model": "config info metadata model",
    "GET /health": "alive healthcheck heartbeat live liveness livez ping ready readiness status up",
    "GET /docs": "api api-docs doc documentation help redoc swagger swagger-ui",
    "GET /openapi.json": "openapi openapi.yaml schema swagger.json",
}
"""Last words of addresses that people guess."""
_ELSEWHERE = {
    "metrics": "metrics have a port of their own (--metrics-port)",
    "v2": "the Open Inference Protocol is answered over gRPC",
    "pull": "models are named when the server starts (--model NAME=BUNDLE), not pulled",
    **dict.fromkeys(
        ("blobs", "copy", "create", "delete", "push"),
        "models are named when the server starts (--model NAME=BUNDLE), and no call changes them",
    ),
    "embeddings": "captioner has no embeddings",
    "embed": "captioner has no embeddings",
}
_GRPC = ("captioner.v1.", "grpc.", "inference.", "*")
"""How the first part of the address of a gRPC call begins, and all of that of the first line of HTTP/2."""


def hint(path: str, known: Iterable[str]) -> str:
    """What is probably meant, as a clause. `known` are the calls, as "VERB /path"."""
    words = [word for word in path.lower().split("/") if word]
    if words and words[0].startswith(_GRPC):
        return "gRPC has a port of its own (--port)"
    for word in reversed(words):
        if word in _ELSEWHERE:
            return _ELSEWHERE[word]
    paths = {call.split()[1]: call for call in known}
    if path.rstrip("/") in paths:
        return f"it is {paths[path.rstrip('/')]}"
    ends: dict[str, str] = {}
    for place, call in paths.items():  # such as /caption for /v1/caption
        ends.setdefault(place.rpartition("/")[2], call)
    for call, guesses in _MEANT.items():
        ends |= dict.fromkeys(set(guesses.split()) - set(ends), call)
    meant = next((ends[word] for word in reversed(words) if word in ends), None)
    if not meant and (close := closest(path.lower()[:100], paths)):
        meant = paths[close]
    return f"did you mean {meant}?" if meant else "GET /docs lists what is"
