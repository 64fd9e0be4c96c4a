"""The options of a server: sizes of batches, and what is refused."""

from pathlib import Path

import pytest

from captioner.errors import OptionsError
from captioner_server.errors import ServerStartError
from captioner_server.options import ServerOptions
from captioner_server.server import CaptionServer


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (16, (1, 2, 4, 8, 16)), (17, (1, 2, 4, 8, 16, 17))],
)
def test_batch_sizes_are_powers_of_two_and_the_largest(most: int, sizes: tuple[int, ...]) -> None:
    assert ServerOptions(max_batch_size=most).batch_sizes == sizes


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 65536},
        {"max_batch_size": 0},
        {"max_beam_size": 17},
        {"grace_s": -1.0},
        {"host": "unix:/run/captioner.sock", "http_port": 0},
        {"host": "unix:"},
        {"host": "127.0.0.1:99"},
        {"host": "[::1]:99"},
        {"host": "http://127.0.0.1"},
        {"host": ""},
        {"host": "localhost "},
        {"metrics_host": "localhost:99"},
        {"metrics_host": "unix:/run/metrics.sock"},
        {"max_wait_s": float("nan")},
        {"tls_key": Path("key.pem")},
        *(
            {"http_cors": text}
            for text in (
                "foo",
                "https://a.example/",
                "https://a.example,b.example",
                "null",
                "file://",
                "file://a",
            )
        ),
    ],
)
def test_what_is_out_of_range_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionsError) as caught:
        ServerOptions(**wrong)
    assert caught.value.field in wrong


def test_a_host_is_no_url() -> None:
    with pytest.raises(
        OptionsError, match=r"host must be an address or a name, without a port or scheme, got"
    ):
        ServerOptions(host="http://example.org")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("::1", "[::1]:7"),
        ("::", "[::]:7"),
        ("[::1]", "[::1]:7"),
        ("fe80::1%eth0", "[fe80::1%eth0]:7"),
        ("0.0.0.0", "0.0.0.0:7"),
        ("a.example", "a.example:7"),
        ("unix:/run/captioner.sock", "unix:/run/captioner.sock"),
    ],
)
def test_hosts_are_written_as_people_write_them(host: str, address: str) -> None:
    assert ServerOptions(host=host, port=7).address == address


@pytest.mark.parametrize(
    ("http_cors", "origins"),
    [
        (None, set()),
        ("", set()),
        ("*", {"*"}),
        ("https://A.example, http://[::1]:8080,", {"https://a.example", "http://[::1]:8080"}),
        ("app://obsidian.md,tauri://localhost", {"app://obsidian.md", "tauri://localhost"}),
        ("moz-extension://8c-1,chrome-extension://ab", {"moz-extension://8c-1", "chrome-extension://ab"}),
    ],
)
def test_origins_are_written_as_browsers_do(http_cors: str | None, origins: set[str]) -> None:
    assert ServerOptions(http_cors=http_cors).origins == origins


@pytest.mark.parametrize("origin", ["null", "file://", "file:///home/me"])
def test_pages_of_files_have_no_origin(origin: str) -> None:
    with pytest.raises(OptionsError, match="pages of files have none"):
        ServerOptions(http_cors=origin)


def test_a_message_has_room_for_more_than_the_largest_image() -> None:
    for limit in (1, 2**20, 2**28, 2**30):
        assert limit < ServerOptions(max_image_bytes=limit).max_message_bytes < 2**31


def test_files_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    for token in (tmp_path / "none", tmp_path, tmp_path / "empty"):
        with pytest.raises(ServerStartError) as caught:
            CaptionServer(ServerOptions(token_file=token))
        assert "\n" not in str(caught.value)
