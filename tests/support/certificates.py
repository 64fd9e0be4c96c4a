"""Certificates for tests of encryption, for which trustme is needed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import trustme


class Authority:
    """An authority and its files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._authority = folder, trustme.CA()
        self.roots = folder / "roots.pem"
        self._authority.cert_pem.write_to_path(str(self.roots))

    def issue(self, name: str, *hosts: str, ends: datetime | None = None) -> tuple[Path, Path]:
        """A certificate for these hosts, by default localhost, and its key."""
        issued = self._authority.issue_cert(*(hosts or ("localhost", "127.0.0.1")), not_after=ends)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        return certificate, key
