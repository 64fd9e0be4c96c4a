"""When certificates expire, which `ssl` tells only of authorities and of peers."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime

CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\s.*?-----END CERTIFICATE-----", re.DOTALL)
_TIME = rb"(?:\x17\x0d|\x18\x0f(\d\d))(\d{12}Z)"
_VALIDITY = re.compile(rb"\x30." + 2 * _TIME, re.DOTALL)
"""The first and the last moment of a certificate; years have two or four digits."""


def first_certificate(pem: bytes) -> bytes:
    """The first certificate of a file, that of its owner, as DER; empty if there is none or it is damaged."""
    found = CERTIFICATE.search(pem)
    try:
        return ssl.PEM_cert_to_DER_cert(found[0].decode("ascii")) if found else b""
    except ValueError:
        return b""


def expiry_of(pem: bytes) -> datetime | None:
    """When the first certificate expires; None if it does not say."""
    if (found := _VALIDITY.search(first_certificate(pem))) is None:
        return None
    century, rest = found.groups()[2:]
    text = ((century or b"") + rest).decode()
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ" if century else "%y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:  # a 13th month
        return None
