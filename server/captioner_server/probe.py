"""Queries the health of a server: `python -m captioner_server.probe [HOST:PORT]` exits with 0 if it serves.

For container health checks without another probe. It uses TLS if the server does. As it queries a server on
the same machine, it accepts any certificate, also one that has expired. With --root-certificates, it accepts
those that are valid and of these authorities, whatever host they name.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from captioner.errors import reason_of

TIMEOUT_S = 3.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="captioner_server.probe", description="Query the health of a server."
    )
    parser.add_argument("address", nargs="?", type=_address, default="127.0.0.1:50051", metavar="HOST:PORT")
    parser.add_argument("--root-certificates", type=Path, metavar="PEM", help="authorities to trust")
    parser.add_argument("--certificate", type=Path, metavar="PEM", help="the probe's own, for mutual TLS")
    parser.add_argument("--key", type=Path, metavar="PEM", help="its private key")
    args = parser.parse_args(arguments)
    try:
        status = asyncio.run(_status(args))
    except grpc.RpcError as error:
        print(f"{args.address}: {error.code().name}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{args.address}: {reason_of(error)}", file=sys.stderr)
        return 1
    print(f"{args.address}: {health_pb2.HealthCheckResponse.ServingStatus.Name(status)}", file=sys.stderr)
    return 0 if status == health_pb2.HealthCheckResponse.SERVING else 1


def _address(text: str) -> str:
    """The text itself; an error of the arguments if it is not HOST:PORT or unix:PATH."""
    if text.startswith("unix:"):
        return text
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"must be HOST:PORT, got {text!r}")
    try:
        host.encode("idna")  # as looking it up does
    except UnicodeError:
        raise argparse.ArgumentTypeError(f"{host!r} is not a name that a host can have") from None
    return text


async def _status(args: argparse.Namespace) -> int:
    """Raises `OSError` and `grpc.RpcError`."""
    context = _context(args)  # also for a server without TLS, so that files are always checked
    async with AsyncExitStack() as opened:
        address = args.address
        if not address.startswith("unix:") and (secure := await _secure(address, context)):
            opened.callback(secure[1].close)
            address = await opened.enter_async_context(_plaintext(*secure))
        options = [("grpc.enable_http_proxy", 0)]  # it is on this machine
        channel = await opened.enter_async_context(grpc.aio.insecure_channel(address, options))
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        return int(answer.status)


def _context(args: argparse.Namespace) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if args.root_certificates:
        context.load_verify_locations(args.root_certificates)
        context.verify_mode = ssl.CERT_REQUIRED
    if args.certificate:
        context.load_cert_chain(args.certificate, args.key)
    return context


async def _secure(address: str, context: ssl.SSLContext) -> Streams | None:
    """A connection over TLS; None if the server does not use it."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except ssl.SSLCertVerificationError:
        raise
    except (ssl.SSLError, ConnectionResetError, TimeoutError):  # possible reactions of a server without TLS
        return None


@asynccontextmanager
async def _plaintext(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[str]:
    """An address at which gRPC, which always checks certificates, reaches the other end in plaintext."""

    async def pass_on(plain_reader: asyncio.StreamReader, plain_writer: asyncio.StreamWriter) -> None:
        await asyncio.gather(_copy(plain_reader, writer), _copy(reader, plain_writer))

    with closing(await asyncio.start_server(pass_on, "127.0.0.1", 0)) as server:
        yield "{}:{}".format(*server.sockets[0].getsockname())


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
    writer.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
