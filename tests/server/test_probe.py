"""The health probe: with and without encryption, and what is no address."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from support.models import FakeModel
from support.serving import serve

from captioner_server import probe

if TYPE_CHECKING:
    from support.certificates import Authority


@pytest.mark.parametrize("host", ["*.example.com", "10.1.2.3"])
def test_the_probe_accepts_any_certificate(authority: Authority, host: str) -> None:
    certificate, key = authority.issue("server", host)
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        assert probe.main([server.address]) == 0


def test_the_probe_accepts_an_expired_certificate_unless_told_whom_to_trust(
    authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would have the container restarted, again and again, while callers may be fine with it."""
    certificate, key = authority.issue("server", expiry=datetime.now(UTC) - timedelta(days=1))
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        assert probe.main([server.address]) == 0
        assert probe.main([server.address, "--root-certificates", str(authority.roots)]) == 1
    assert "certificate has expired" in capsys.readouterr().err


def test_the_probe_has_a_certificate_of_its_own_for_servers_that_want_one(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    options = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": authority.roots}
    with serve(FakeModel(), **options) as server:
        assert probe.main([server.address]) == 1
        assert probe.main([server.address, "--certificate", str(certificate), "--key", str(key)]) == 0


def test_the_probe_speaks_both(authority: Authority) -> None:
    certificate, key = authority.issue("server")
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        assert probe.main([server.address]) == 0
        assert probe.main([server.address, "--root-certificates", str(authority.roots)]) == 0
    with serve(FakeModel()) as server:
        assert probe.main([server.address]) == 0
    assert probe.main([server.address]) == 1


@pytest.mark.parametrize("address", ["localhost", "localhost:", "localhost:abc", "localhost:70000", ":50051"])
def test_the_probe_says_in_one_line_what_is_no_address(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        probe.main([address])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"must be HOST:PORT, got {address!r}")


def test_the_probe_says_in_one_line_what_is_no_host(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        probe.main(["a..b:50051"])
    assert capsys.readouterr().err.splitlines()[-1].endswith("'a..b' is not a name that a host can have")
