"""Queries the health of a server: `python -m captioner_server.probe [HOST:PORT]` exits with 0 if it serves.

For container health checks without another probe. It uses TLS if the server does. As it queries a server on
the same machine, it accepts any certificate, unless --root-certificates is given.
"""

from __future__ import annotations

import argparse
import socket
import ssl
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from captioner.errors import reason_of

TIMEOUT_S = 3.0


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
        with _channel(args) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        print(f"{args.address}: {error.code().name}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{args.address}: {reason_of(error)}", file=sys.stderr)
        return 1
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    print(f"{args.address}: {status}", file=sys.stderr)
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


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


def _channel(args: argparse.Namespace) -> grpc.Channel:
    options: list[tuple[str, int | str]] = [("grpc.enable_http_proxy", 0)]  # it is on this machine
    shown = None if args.address.startswith("unix:") else certificate_of(args.address)
    if shown is None:
        return grpc.insecure_channel(args.address, options)
    pem, name = shown
    roots = args.root_certificates.read_bytes() if args.root_certificates else pem.encode()
    key = args.key.read_bytes() if args.key else None
    chain = args.certificate.read_bytes() if args.certificate else None
    options += [("grpc.ssl_target_name_override", name)] if name else []
    return grpc.secure_channel(args.address, grpc.ssl_channel_credentials(roots, key, chain), options)


def certificate_of(address: str) -> tuple[str, str] | None:
    """The certificate of a server as PEM, and a name in it; None if it does not use TLS."""
    host, _, port = address.rpartition(":")
    place = host.strip("[]"), int(port)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(place, TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=place[0]) as secure,
        ):
            pem = ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"")
    except ssl.SSLError:
        return None
    except (ConnectionResetError, TimeoutError):  # possible reactions of a server without TLS
        return None
    return pem, _name_in(pem, place)


def _name_in(pem: str, place: tuple[str, int]) -> str:
    """A host that a certificate is valid for; "" if it names none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=pem)
    with socket.create_connection(place, TIMEOUT_S) as plain, context.wrap_socket(plain) as secure:
        fields = secure.getpeercert() or {}
    kinds = ("DNS", "IP Address")
    names = [str(entry[1]) for entry in fields.get("subjectAltName", ()) if entry[0] in kinds]
    return names[0].replace("*", "probe", 1) if names else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
