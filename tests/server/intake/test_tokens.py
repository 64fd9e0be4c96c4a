"""Who may call: tokens with names, files that are read again, guesses that are slowed down."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import server_process
from support.serving import make_image, serve

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.errors import ServerStartError, UnauthenticatedError
from captioner_server.intake.guessers import address_of
from captioner_server.intake.tokens import Token, Tokens, parse_tokens


def test_tokens_have_names_and_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# who may call\nalice secret-a\n\nbob secret-b\n")

    async def run() -> None:
        now = 0.0
        tokens = Tokens(path, lambda: now)
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert await tokens.name_of(f"{scheme} secret-a", "ipv4:1.2.3.4:5") == "alice"
        assert await tokens.name_of("Bearer secret-b", "") == "bob"
        for wrong in ("", "secret-a", "Basic secret-a", "Bearer secret", "Bearer secret-a x", "Bearer ü"):
            with pytest.raises(UnauthenticatedError):
                await tokens.name_of(wrong, f"ipv4:10.0.0.{len(wrong)}:1")
        path.write_text("carol secret-c\ndave d\n")
        now += 1.0
        assert await tokens.name_of("Bearer secret-c", "") == "carol"
        times = path.stat()
        path.write_text("carol secret-d\ndave d\n")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        now += 1.0
        with pytest.raises(UnauthenticatedError):
            await tokens.name_of("Bearer secret-c", "")
        assert await tokens.name_of("Bearer secret-d", "") == "carol"
        for broken in ("one two three\n", "", None):  # changes nothing
            path.write_text(broken) if broken is not None else path.unlink()
            now += 1.0
            assert await tokens.name_of("Bearer secret-d", "") == "carol"
            assert tokens.unusable
        path.write_text("carol secret-d\n")
        now += 1.0
        assert await tokens.name_of("Bearer secret-d", "") == "carol"
        assert not tokens.unusable

    asyncio.run(run())


def test_a_token_that_is_taken_back_while_the_server_starts_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens"
    path.write_text("alice secret-a\n")

    def change_then_parse(content: bytes, path: Path) -> dict[str, Token]:
        path.write_text("bob secret-b\n")
        return parse_tokens(content, path)

    async def run() -> None:
        now = 0.0
        monkeypatch.setattr("captioner_server.intake.tokens.parse_tokens", change_then_parse)
        tokens = Tokens(path, lambda: now)
        monkeypatch.undo()
        now += 1.0
        with pytest.raises(UnauthenticatedError):
            await tokens.name_of("Bearer secret-a", "")
        assert await tokens.name_of("Bearer secret-b", "") == "bob"

    asyncio.run(run())


class Guesses:
    """Tokens and a clock that only sleeping moves; `slept` are the delays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        (folder / "token").write_text("alice secret\n")
        self.now, self.slept = 0.0, list[float]()
        self.tokens = Tokens(folder / "token", lambda: self.now)
        self.sleeping = asyncio.Event()  # holds all who sleep until it is set, as time does
        monkeypatch.setattr("captioner_server.intake.tokens.asyncio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.sleeping.wait()
        self.now += seconds

    async def answer(self, token: str, peer: str = "ipv4:1.2.3.4:5") -> str:
        try:
            return await self.tokens.name_of(f"Bearer {token}", peer)
        except UnauthenticatedError as error:
            return f"{type(error).__name__} {error}"

    async def flood(self, count: int, peer: str = "ipv4:1.2.3.4:5") -> list[asyncio.Task[str]]:
        """Different wrong tokens at the same time, whose delays do not end."""
        guesses = [asyncio.create_task(self.answer(f"wrong{number}", peer)) for number in range(count)]
        await asyncio.wait(guesses, timeout=0)
        return guesses


@pytest.fixture
def guesses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Guesses:
    return Guesses(monkeypatch, tmp_path)


def test_guesses_from_one_address_take_longer_each_time(guesses: Guesses) -> None:
    async def run() -> None:
        guesses.sleeping.set()
        for guess in range(8):
            await guesses.answer(str(guess), f"ipv4:1.2.3.4:{guess}")
        await guesses.answer("1", "ipv4:1.2.3.5:1")
        guesses.now += 60
        await guesses.answer("9")

    asyncio.run(run())
    assert guesses.slept[:3] == [0.1, 0.2, 0.4] and guesses.slept[7:] == [5.0, 0.1, 0.1]


def test_beyond_a_few_guesses_right_and_wrong_tokens_get_the_same_answer(guesses: Guesses) -> None:
    async def run() -> None:
        flood = await guesses.flood(50)
        assert len(guesses.slept) == 4
        for guess in flood[:4]:
            guess.cancel()  # hanging up does not allow further guesses
        await asyncio.wait(flood[:4])
        answers = {await guesses.answer(token) for token in ("secret", "wrong0", "new")}
        assert len(answers) == 1 and "try again in 0.1 s" in answers.pop()
        assert await guesses.answer("secret", "ipv4:1.2.3.5:5") == "alice"
        guesses.now += 0.1
        assert await guesses.answer("secret") == "alice"

    asyncio.run(run())


def test_so_many_sleeping_guesses_that_no_further_ones_sleep_are_no_way_around(guesses: Guesses) -> None:
    async def run() -> None:
        for number in range(100):
            await guesses.flood(4, f"ipv4:1.2.3.{number}:5")
        assert len(guesses.slept) == 256
        codes = set()
        for token in ("secret", "wrong9"):
            with pytest.raises(UnauthenticatedError) as caught:
                await guesses.tokens.name_of(f"Bearer {token}", "ipv4:1.2.3.99:5")
            codes.add((caught.value.code, str(caught.value)))
        assert len(codes) == 1 and codes.pop()[0] == "unauthenticated"  # which the alert counts

    asyncio.run(run())


def test_others_behind_the_address_of_a_guesser(guesses: Guesses) -> None:
    async def run() -> None:
        known, other = "ipv4:1.2.3.4:6", "ipv4:1.2.3.4:7"
        old = [asyncio.create_task(guesses.answer("old", other)) for _ in range(20)]
        await asyncio.wait(old, timeout=0)
        assert await guesses.answer("secret", known) == "alice"  # one old token, however often, is one guess
        await guesses.flood(4)
        assert await guesses.answer("secret", known) == "alice"  # accepted before
        assert (await guesses.answer("secret", other)).startswith("TooManyGuessesError")
        assert (await guesses.answer("wrong", known)).startswith("TooManyGuessesError")
        assert (await guesses.answer("secret", known)).startswith("TooManyGuessesError")

    asyncio.run(run())


def test_a_guesser_does_not_get_further_by_changing_its_address(guesses: Guesses) -> None:
    async def run() -> None:
        for number in range(5000):
            guess = asyncio.create_task(guesses.answer("wrong", f"ipv6:[2001:db8:1:{number:x}::1]:5"))
            await asyncio.wait([guess], timeout=0)
        for number in range(4):
            await guesses.flood(1, f"ipv6:%5B2001:db8::{number:x}%5D:5")
            guess = asyncio.create_task(guesses.answer(f"other{number}", "ipv6:[2001:db8::77]:5"))
            await asyncio.wait([guess], timeout=0)
        assert (await guesses.answer("secret", "ipv6:[2001:db8::99]:5")).startswith("TooManyGuessesError")
        for number, answer in ((0, "alice"), (4999, "TooManyGuessesError")):  # the oldest are forgotten
            peer = f"ipv6:[2001:db8:1:{number:x}::1]:5"
            await guesses.flood(3, peer)
            assert (await guesses.answer("secret", peer)).startswith(answer)

    asyncio.run(run())


def test_guesses_on_a_unix_socket_lock_out_nobody(guesses: Guesses) -> None:
    """All its callers have the same address."""

    async def run() -> None:
        await guesses.flood(50, "unix:")
        assert await guesses.answer("secret", "unix:") == "alice"
        assert (await guesses.flood(1, "unix:"))[0].done() is False
        assert guesses.slept[:3] == [0.1, 0.2, 0.4]

    asyncio.run(run())


def test_what_is_no_file_is_refused_without_waiting_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioner_server.intake.tokens._PIPE_S", 0.1)
    path, now = tmp_path / "tokens", 0.0
    os.mkfifo(path)
    with pytest.raises(ServerStartError):
        Tokens(path)
    for other in (tmp_path, Path("/dev/zero")):
        with pytest.raises(ServerStartError, match=f"cannot read {other}"):
            Tokens(other)
    path.unlink()
    path.write_text("alice secret\n")
    tokens = Tokens(path, lambda: now)
    path.unlink()
    os.mkfifo(path)
    now = 1.0
    assert asyncio.run(tokens.name_of("Bearer secret", "")) == "alice"
    assert tokens.unusable


def test_a_command_may_write_the_tokens(tmp_path: Path) -> None:
    """As with `--token-file <(command)`; they are read once."""
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(Tokens, Path(f"/dev/fd/{reading}"), iter(range(0, 100, 2)).__next__)
        os.write(writing, b"alice ")
        os.write(writing, b"secret\n")
        os.close(writing)
        tokens = made.result(PATIENCE_S)
    for _ in range(3):
        assert asyncio.run(tokens.name_of("Bearer secret", "")) == "alice"
    assert not tokens.unusable
    os.close(reading)


def test_a_stream_ends_soon_after_its_token_was_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("alice secret-a\nbob secret-b\n")
    with (
        serve(FakeModel(), token_file=path) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        pause = threading.Semaphore(1)

        def images() -> Iterator[pb.CaptionBatchRequest]:
            for number in range(1000):
                assert pause.acquire(timeout=PATIENCE_S)
                yield pb.CaptionBatchRequest(id=str(number), image=make_image(number))

        call = CaptionServiceStub(channel).CaptionBatch(
            images(), metadata=[("authorization", "Bearer secret-b")], timeout=PATIENCE_S
        )
        next(call)
        path.write_text("alice secret-a\nbob new\n")
        began = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            while True:
                pause.release()
                next(call)
                time.sleep(0.05)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert time.monotonic() - began < 30
        assert server.metric("unusable_files", file="tokens") == 0
        path.write_text("")
        wait_until(lambda: ask(channel) or server.metric("unusable_files", file="tokens"))


def ask(channel: grpc.Channel) -> None:
    CaptionServiceStub(channel).GetModel(
        pb.GetModelRequest(), metadata=[("authorization", "Bearer new")], timeout=PATIENCE_S
    )


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:1.2.3.4:5", "1.2.3.4"),
        ("ipv6:[::ffff:1.2.3.4]:5", "1.2.3.4"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:7", "2001:db8:1:2::/64"),
        ("ipv6:[fe80::1%25eth0]:7", "fe80::/64"),
        ("unix:", "unix:"),
        ("ipv4:strange:5", "strange"),
    ],
)
def test_addresses_of_guessers(peer: str, address: str) -> None:
    assert address_of(peer) == address


@pytest.mark.parametrize(
    "content",
    [
        "",
        "# none\n",
        "a b c\n",
        "a b\na c\n",
        "na/me token\nb c\n",
        "a b calls=0\n",
        "a b calls=1.5\n",
        "a b rate=nan\n",
        "a b rate=1 rate=2\n",
        "a b images=\n",
        "a b pixels=3\n",
        "a same\nb same\n",
    ],
)
def test_files_that_hold_no_tokens(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(ServerStartError):
        Tokens(tmp_path / "tokens")


def test_the_log_names_the_caller_and_never_the_token(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("alice secret-a\nbob secret-b\n")
    with (
        server_process(token_file=str(tmp_path / "tokens")) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = CaptionServiceStub(channel)
        stub.Caption(
            pb.CaptionRequest(image=make_image(1)),
            metadata=[("authorization", "bearer secret-a")],
            timeout=PATIENCE_S,
        )
        assert server.wait_for("call")["caller"] == "alice"
        with pytest.raises(grpc.RpcError):
            stub.Caption(
                pb.CaptionRequest(image=b""), metadata=[("authorization", "Bearer guess")], timeout=PATIENCE_S
            )
        refused = server.wait_for("call")
        assert refused["code"] == "UNAUTHENTICATED" and "127.0.0.1" in refused["peer"]
        assert not any("secret" in line or "guess" in line for line in server.lines)


def test_tokens_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"\xef\xbb\xbfsecret\n")
    assert parse_tokens(path.read_bytes(), path)["token"].secret == b"secret"


@pytest.mark.skipif(os.name != "posix", reason="other permissions")
def test_a_file_that_everybody_may_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens"
    path.write_text("alice secret-a\n")
    for mode, said in ((0o644, True), (0o640, False)):
        path.chmod(mode)
        caplog.clear()
        Tokens(path)
        assert ("every user of this machine may read the token file" in caplog.text) == said
