"""Certificates for tests of encryption, for which trustme is needed."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import trustme


class Authority:
    """An authority and its files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._authority = folder, trustme.CA()
        self.roots = folder / "roots.pem"
        self._authority.cert_pem.write_to_path(str(self.roots))

    def issue(self, name: str, *hosts: str, expiry: datetime | None = None) -> tuple[Path, Path]:
        """A certificate for these hosts, by default localhost, and its key."""
        names, since = hosts or ("localhost", "127.0.0.1"), datetime(2001, 1, 1, tzinfo=UTC)
        issued = self._authority.issue_cert(*names, not_before=since, not_after=expiry)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return certificate, key


def shown_certificate(address: str) -> str:
    """The certificate, in PEM, that is shown at HOST:PORT."""
    host, _, port = address.rpartition(":")
    return ssl.get_server_certificate((host, int(port)))
