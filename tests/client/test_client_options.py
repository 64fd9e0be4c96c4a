"""The options of a client: its token, TLS, kinds of values, addresses."""

import math
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.models import FakeModel
from support.serving import make_image, serve

from captioner.errors import OptionsError
from captioner_client import (
    AsyncCaptionClient,
    AuthenticationError,
    CaptionClient,
    ClientOptions,
    DeadlineExceededError,
    ServerUnavailableError,
)
from captioner_client.channel import make_target, parse_addresses


def test_a_token_is_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    with serve(FakeModel(), token_file=tmp_path / "token") as server:
        with CaptionClient(server.address, ClientOptions(token="secret")) as client:
            assert client.caption([make_image(1)])
        with (
            CaptionClient(server.address) as client,
            pytest.raises(AuthenticationError, match=r"no valid token .*--token-file FILE"),
        ):
            client.caption(make_image(1))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_encrypts_and_checks_the_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        port = server.address.split(":")[1]
        trusting = ClientOptions(root_certificates=certificate)
        for addresses in (f"localhost:{port}", [f"localhost:{port}", f"localhost:{port}"]):
            with CaptionClient(addresses, trusting) as client:
                assert client.caption(make_image(1)).text
        with (
            CaptionClient(f"localhost:{port}", ClientOptions(tls=True)) as client,
            pytest.raises(ServerUnavailableError),
        ):
            client.caption(make_image(1))


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"-----BEGIN DH PARAMETERS-----"])
def test_files_without_a_certificate_or_key_are_refused_at_once(tmp_path: Path, content: bytes) -> None:
    for what in ("certificate", "key"):
        (tmp_path / what).write_bytes(f"-----BEGIN {what.upper()}-----".encode())
    (tmp_path / "wrong").write_bytes(content)
    own = {"certificate": tmp_path / "certificate", "key": tmp_path / "key"}
    for name, what in (("root_certificates", "certificate"), ("certificate", "certificate"), ("key", "key")):
        options = ClientOptions(**{**own, name: tmp_path / "wrong"})
        with (
            CaptionClient("localhost:1", options) as client,
            pytest.raises(OptionsError, match=f"wrong has no {what} in PEM"),
        ):
            client.caption(make_image(1))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"token": token} for token in ("", "abc\n", "a\nb", "alice secret", "é", b"abc")),
        {"max_attempts": 1.5},
        {"batch_window": True},
        {"timeout_s": "5"},
        {"timeout_s": None},
        {"root_certificates": 5},
        *({"model": name} for name in (5, 0, False, b"", b"x", "\ud800", "x" * 5000)),
    ],
)
def test_options_of_a_wrong_kind_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionsError) as caught:
        ClientOptions(**wrong)
    assert caught.value.field in wrong


@pytest.mark.parametrize("timeout_s", ["1", math.nan, math.inf, True, 1e300])
def test_what_is_no_time_for_a_call_is_refused(timeout_s: Any) -> None:
    with CaptionClient("localhost:1") as client:
        for call in (
            client.get_model,
            partial(client.caption, b"x"),
            lambda **o: next(client.stream(b"x", **o)),
        ):
            with pytest.raises(OptionsError, match="timeout_s must be a number") as caught:
                call(timeout_s=timeout_s)
            assert caught.value.field == "timeout_s"


@pytest.mark.parametrize("timeout_s", [0, -1, -math.inf])
def test_time_that_has_passed_is_a_deadline(timeout_s: float) -> None:
    with (
        CaptionClient("localhost:1") as client,
        pytest.raises(DeadlineExceededError, match="no time is left to call localhost:1"),
    ):
        client.get_model(timeout_s=timeout_s)


def test_words_that_no_message_can_hold_are_refused() -> None:
    with CaptionClient("localhost:1") as client, pytest.raises(OptionsError) as caught:
        client.caption(b"x", include=["\ud800"])
    assert caught.value.field == "include"


def test_numbers_of_numpy_are_numbers() -> None:
    given = ClientOptions(timeout_s=np.float32(2), batch_window=np.int64(4))  # type: ignore[arg-type]
    assert repr(given) == repr(ClientOptions(timeout_s=2.0, batch_window=4))


def test_files_may_be_named_by_texts() -> None:
    options = ClientOptions(root_certificates="missing.pem", wait_s=0)
    with (
        CaptionClient("localhost:1", options) as client,
        pytest.raises(OptionsError, match=r"missing\.pem: No"),
    ):
        client.get_model()


@pytest.mark.parametrize(
    "addresses",
    [
        *("", "host", "host:", ":1", "host:0", "host:x", "host:²", [], ["a:1", ""]),
        *("http://localhost:50051", "a b:1", "localhost:1:2", "host/path:1", "unix:/tmp/a,b:1"),
        *(f"{'a' * 64}:1", "a..b:50051", ".:1", f"{'é' * 60}:1", ["a:1", "a..b:1"]),
        *("::1", "::", "[::1", "[::1]", "::1::1:7", "[fe80::1%]:7", "[fe80::1%a b]:7"),
        *(None, 3, b"a:1", ["a:1", 3], ["a:1", None]),
        *("unix:", "unix://", f"unix:/{'a' * 107}", f"unix:/{'é' * 54}"),
    ],
)
def test_what_is_no_address_is_a_mistake(addresses: object) -> None:
    for kind in (CaptionClient, AsyncCaptionClient):
        with pytest.raises(OptionsError):
            kind(addresses)


@pytest.mark.parametrize(
    ("addresses", "target"),
    [
        (["example.org:50051"], "dns:///example.org:50051"),
        (["[::1]:7"], "dns:///[::1]:7"),
        (["[fe80::1%eth0.1]:7"], "dns:///[fe80::1%eth0.1]:7"),
        (["caption_server-1.lan:7"], "dns:///caption_server-1.lan:7"),
        (["unix:/tmp/socket"], "unix:/tmp/socket"),
        (["127.0.0.1:1", "127.0.0.2:2"], "ipv4:127.0.0.1:1,127.0.0.2:2"),
    ],
)
def test_addresses_become_targets(addresses: list[str], target: str) -> None:
    assert make_target(parse_addresses(addresses)) == target
