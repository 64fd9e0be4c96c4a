"""TLS: the certificate of the server, which is reloaded when its files change, and mutual TLS."""

from __future__ import annotations

import ipaddress
import logging
import re
import ssl
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc

from captioner.certificates import CERTIFICATE, expiry_of, first_certificate
from captioner.errors import reason_of
from captioner_server.errors import ServerStartError
from captioner_server.options import ServerOptions
from captioner_server.watched_file import read_file, read_whole

log = logging.getLogger(__name__)


_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----\s.*?-----END \1PRIVATE KEY-----", re.DOTALL)
_KEY_TYPES = tuple(
    map(
        bytes.fromhex,
        (
            "300d06092a864886f70d0101010500",  # RSA
            "301306072a8648ce3d020106082a8648ce3d030107",  # elliptic curve P-256
            "301006072a8648ce3d020106052b81040022",  # P-384
        ),
    )
)
"""How a certificate names the types of keys with which gRPC (BoringSSL) serves. It accepts files with others,
and then every handshake fails."""


_SOON = timedelta(days=14)


Report = Callable[[Sequence[datetime] | None], None]
"""Gets when the certificate that was read and then the authorities of callers expire; None if renewed files
cannot be used."""


def server_credentials(options: ServerOptions, report: Report) -> grpc.ServerCredentials | None:
    """The credentials of the server; None for plaintext. Renewed files are read by themselves, and then
    reported. Raises `ServerStartError` for files that cannot be used, and for plaintext where it is not
    allowed."""
    if options.tls_certificate is None or options.tls_key is None:
        if not (options.insecure or is_local(options.host)):
            raise ServerStartError(
                f"other machines can reach {options.host}: set --tls-certificate and --tls-key, "
                "or --insecure for plaintext on a network that you trust"
            )
        return None
    files = _Files(options.tls_certificate, options.tls_key, options.tls_client_ca, report)
    mutual = options.tls_client_ca is not None

    def fetch() -> Any:  # may return None, contrary to its type
        renewed = files.read_again()
        return renewed[1] if renewed else None

    files.context()
    files.tell()
    return grpc.dynamic_ssl_server_credentials(files.configuration(), fetch, mutual)


def server_context(options: ServerOptions, report: Report) -> ssl.SSLContext | None:
    """The TLS context for HTTP; None for plaintext. Renewed files are read by themselves, and then reported.
    Raises `ServerStartError` for unusable files."""
    if options.tls_certificate is None or options.tls_key is None:
        return None
    files = _Files(options.tls_certificate, options.tls_key, options.tls_client_ca, report)
    context = current = files.context()
    files.tell()
    mutual, since = options.tls_client_ca is not None, 0.0

    def renew(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        nonlocal current, since
        if renewed := files.read_again():
            current, since = renewed[0], time.time()  # noqa: TID251 (that of sessions)
        connection.context = current
        # A caller is not verified again where a session of TLS 1.2 goes on.
        session = connection.session if mutual and connection.session_reused else None
        is_old = session is not None and session.time <= since
        return ssl.ALERT_DESCRIPTION_ACCESS_DENIED if is_old else None

    context.sni_callback = renew  # called at each handshake, also without a server name
    return context


def warn_of_expiry(own: datetime, *authorities: datetime) -> None:
    """Log that the own certificate or one of the authorities of callers has expired or soon will; nothing of
    others."""
    for what, expiry in (("certificate", own), *(("authority of callers", each) for each in authorities)):
        left = expiry - datetime.now(UTC)
        if left < _SOON:
            event = f"{what} expires soon" if left > timedelta() else f"{what} has expired"
            log.warning(event, extra={"fields": {"expires": expiry.isoformat()}})


def is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost" or host.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _Files:
    """PEM files that belong together."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        client_ca: Path | None,
        report: Report,
    ) -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._report = report
        self._used = self._seen = self._read()

    def context(self) -> ssl.SSLContext:
        """Raises `ServerStartError` for files that cannot be read, are not PEM, or do not belong together,
        and for keys of a type that gRPC cannot use."""
        for path in filter(None, (self._certificate, self._key, self._client_ca)):
            try:
                read_whole(path)  # `ssl` would wait for a pipe
            except OSError as error:
                raise ServerStartError(f"cannot use {path}: {reason_of(error)}") from None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ssl.SSLError) as error:
            reason = self._what_is_wrong() or getattr(error, "reason", None) or reason_of(error)
            names = f"{self._certificate} and {self._key}"
            raise ServerStartError(f"cannot use {names} as certificate and key: {reason}") from None
        if not _is_usable(read_file(self._certificate) or b""):
            what = "its key is not of a type that gRPC serves with: RSA, or an elliptic curve P-256 or P-384"
            raise ServerStartError(f"cannot use {self._certificate}: {what}")
        if self._client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            # Sessions of TLS 1.3 and tickets would outlive the authority of their caller.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
            try:
                context.load_verify_locations(self._client_ca)
            except (OSError, ssl.SSLError) as error:
                reason = getattr(error, "reason", None) or reason_of(error)
                if not CERTIFICATE.search(read_file(self._client_ca) or b""):
                    reason = "it has no certificate in PEM"
                raise ServerStartError(f"cannot use {self._client_ca}: {reason}") from None
        return context

    def _what_is_wrong(self) -> str:
        """What OpenSSL does not say of a certificate and a key that it cannot read; "" where it does."""
        certificate, key, _ = self._read()
        if not CERTIFICATE.search(certificate or b""):
            return f"{self._certificate.name} has no certificate in PEM"
        found = _KEY.search(key or b"")
        if not found:
            return f"{self._key.name} has no key in PEM"
        encrypted = b"ENCRYPTED" in found[0]
        return f"{self._key.name} is encrypted, and no password is asked for" if encrypted else ""

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """The content of the files for gRPC."""
        certificate, key, roots = self._used
        return grpc.ssl_server_certificate_configuration([(key or b"", certificate or b"")], roots)

    def read_again(self) -> tuple[ssl.SSLContext, grpc.ServerCertificateConfiguration] | None:
        """What to use from now on, if the files have changed, else None; called at each handshake. Files that
        do not match, for instance while only one has been replaced, change nothing."""
        contents = self._read()
        if contents == self._seen:
            return None
        try:
            context = self.context()
        except ServerStartError as error:
            context, reason = None, str(error)
        if self._read() != contents:  # replaced meanwhile: the next handshake reads them
            return None
        if context is None:
            self._seen = contents
            self._report(None)
            log.warning("certificate not read again", extra={"fields": {"reason": reason}})
            return None
        self._used = self._seen = contents
        log.info("certificate read again")
        self.tell()
        return context, self.configuration()

    def tell(self) -> None:
        """Report the certificate and the authorities that are used."""
        certificate, _, roots = self._used
        if own := expiry_of(certificate or b""):
            expiries = (expiry_of(found[0]) for found in CERTIFICATE.finditer(roots or b""))
            self._report([own, *filter(None, expiries)])

    def _read(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """The certificate, its key and the roots of callers; None for what is not there."""
        return read_file(self._certificate), read_file(self._key), read_file(self._client_ca)


def _is_usable(pem: bytes) -> bool:
    """Whether gRPC can use the key of the first certificate."""
    der = first_certificate(pem)
    return any(kind in der for kind in _KEY_TYPES)
