"""The calls of a server, and what it answers, which is not trusted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from captioner.protobuf import caption_from_proto
from captioner.results import Caption
from captioner.v1 import captioner_pb2_grpc

T = TypeVar("T")


def parsed(answer: T | None) -> T:
    """The answer to a call of `make_stub`. Raises `ValueError` where there is None."""
    if answer is None:
        raise ValueError("it is no message of this service")
    return answer


def caption_of(answer: Any, image: Any) -> Caption:
    """The caption of `image` in an answer. Raises `ValueError` if it has none, or as `caption_from_proto`
    does."""
    if not parsed(answer).HasField("caption"):
        raise ValueError("it has no caption")
    return caption_from_proto(answer.caption, image)


def make_stub(channel: grpc.aio.Channel) -> Any:
    """The calls, with None in place of an answer that is no such message."""
    return captioner_pb2_grpc.CaptionServiceStub(_Parsing(channel))


class _Parsing:
    """A channel, for a stub. gRPC itself would log a traceback for what is no message."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        make = getattr(self._channel, kind)

        def call(path: str, *, response_deserializer: Callable[[bytes], Any], **more: Any) -> Any:
            return make(path, response_deserializer=partial(_parse, response_deserializer), **more)

        return call


def _parse(parse: Callable[[bytes], Any], answer: bytes) -> Any:
    try:
        return parse(answer)
    except DecodeError:
        return None
