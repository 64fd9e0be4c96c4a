"""Who may call: tokens with names, files that are read again, guesses that are slowed down."""

import asyncio
import os
from pathlib import Path

import grpc
import pytest
from support.patience import PATIENCE_S
from support.processes import server_process
from support.serving import make_image

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.errors import ServerStartError, UnauthenticatedError
from captioner_server.intake.guessers import address_of
from captioner_server.intake.tokens import Token, Tokens, read_tokens


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
        path.write_text("one two three\n")
        now += 1.0
        assert await tokens.name_of("Bearer secret-d", "") == "carol"  # a broken file changes nothing

    asyncio.run(run())


def test_a_token_that_is_taken_back_while_the_server_starts_is_not_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tokens"
    path.write_text("alice secret-a\n")

    def read_then_change(path: Path) -> dict[str, Token]:
        found = read_tokens(path)
        path.write_text("bob secret-b\n")
        return found

    async def run() -> None:
        now = 0.0
        monkeypatch.setattr("captioner_server.intake.tokens.read_tokens", read_then_change)
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
    ],
)
def test_files_that_hold_no_tokens(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(ServerStartError):
        read_tokens(tmp_path / "tokens")


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
    assert read_tokens(path)["token"].secret == b"secret"


@pytest.mark.skipif(os.name != "posix", reason="other permissions")
def test_a_file_that_everybody_may_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tokens"
    path.write_text("alice secret-a\n")
    for mode, said in ((0o644, True), (0o640, False)):
        path.chmod(mode)
        caplog.clear()
        Tokens(path)
        assert ("every user of this machine may read the token file" in caplog.text) == said
