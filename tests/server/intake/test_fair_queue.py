"""Who comes next: callers in turn, by what they cost; interactive calls first, bulk never forgotten."""

import asyncio
from collections import Counter
from weakref import WeakSet

from hypothesis import given
from hypothesis import strategies as st

from captioner_server.intake.fair_queue import BULK_SHARE, FairQueue
from captioner_server.intake.ticket import Kind, Ticket
from captioner_server.intake.turns import Turns


def take(queue: FairQueue[str], count: int) -> list[str]:
    return [queue.take(next(queue.order())) for _ in range(count)]


def test_callers_take_turns_and_each_keeps_its_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.add(f"a{number}", Ticket("a"))
    for number in range(2):
        queue.add(f"b{number}", Ticket("b"))
    assert take(queue, 6) == ["a0", "b0", "a1", "b1", "a2", "a3"]


def test_what_costs_more_comes_less_often() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(30):
        queue.add(f"dear{number}", Ticket("dear"), 5.0)
        queue.add(f"cheap{number}", Ticket("cheap"))
    taken = Counter(name.rstrip("0123456789") for name in take(queue, 30))
    assert taken["cheap"] >= 4 * taken["dear"] > 0


def test_who_asks_for_a_little_does_not_wait_for_many_who_ask_for_much() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(40):
        queue.add(f"d{number}", Ticket(f"d{number}"), 17.0)
    for turn in range(100):
        if turn % 2:
            queue.add("cheap", Ticket("c"))
        found = take(queue, 3)
        assert ("cheap" in found) == bool(turn % 2)
        for dear in {*found} - {"cheap"}:  # they come again at once
            queue.add(dear, Ticket(dear), 17.0)


def test_much_is_not_put_off_for_ever_by_new_callers_who_ask_for_a_little() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add("dear", Ticket("d"), 17.0)
    taken: list[str] = []
    for number in range(60):
        queue.add(f"cheap{number}", Ticket(f"new{number}"))
        taken += take(queue, 1)
    assert "dear" in taken[16:40]


def test_interactive_calls_come_first_and_bulk_keeps_its_share() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(1000):
        queue.add(f"bulk{number}", BULK)
        queue.add(f"call{number}", Ticket("c"))
    assert take(queue, 1) == ["call0"]
    bulk = sum(name.startswith("bulk") for name in take(queue, 400))
    assert abs(bulk / 400 - BULK_SHARE) < 0.02


def test_a_caller_who_comes_back_has_saved_nothing_up() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(100):
        queue.add(f"a{number}", Ticket("a"))
    take(queue, 50)
    for number in range(10):
        queue.add(f"b{number}", Ticket("b"))
    assert Counter(name[0] for name in take(queue, 10)) == {"a": 5, "b": 5}


BULK = Ticket("b", Kind.BATCH)
tickets = st.builds(Ticket, st.sampled_from("abc"), st.sampled_from([Kind.IMAGE, Kind.BATCH]))
asked_for = st.lists(st.tuples(tickets, st.floats(0.25, 10)), max_size=40)


@given(asked_for, st.randoms())
def test_every_item_comes_out_once_in_the_order_that_was_foreseen(
    asked: list[tuple[Ticket, float]], chance: object
) -> None:
    queue: FairQueue[int] = FairQueue()
    for number, (ticket, cost) in enumerate(asked):
        queue.add(number, ticket, cost)
    dropped = {number for number in range(len(asked)) if chance.random() < 0.2}
    for number in dropped:
        queue.discard(number)
    foreseen = list(queue.order())
    assert sorted(foreseen) == [number for number in range(len(asked)) if number not in dropped]
    for number in foreseen:
        assert next(queue.order()) == number
        queue.take(number)
    assert not len(queue)


def test_who_took_longer_than_foreseen_comes_later() -> None:
    async def run() -> None:
        turns, order = Turns(1), []

        async def visit(name: str, seconds: float) -> None:
            ticket = Ticket(name)
            await turns.enter(ticket)
            order.append(name)
            await asyncio.sleep(0)
            turns.leave(ticket, seconds - 1.0)

        await asyncio.gather(*[visit(name, 100.0) for name in "abc"])
        order.clear()
        await asyncio.gather(*[visit(name, 100.0 if name in "abc" else 1.0) for name in "abcabcxyxy"])
        assert order.index("x") <= 1 and order.index("y") <= 2
        assert len(order) == 10 and order.count("x") == order[:6].count("x")

    asyncio.run(run())


def test_places_come_back_whatever_becomes_of_those_who_wait() -> None:
    async def run() -> None:
        turns = Turns(2)

        async def visit(number: int) -> None:
            async with turns.turn(Ticket(str(number % 3))):
                await asyncio.sleep(0.001)

        tasks = [asyncio.create_task(visit(number)) for number in range(50)]
        for moment in range(10):
            await asyncio.sleep(0.001)
            tasks[5 * moment + 3].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (turns.free, turns.waiting) == (2, 0)

    asyncio.run(run())


class Name(str):
    """The name of a caller, which shows whether it is remembered."""


async def pass_by(turns: Turns, callers: int, remembered: WeakSet[Name]) -> None:
    """Callers who come once each, find a free place and cost more than foreseen."""
    for number in range(callers):
        remembered.add(name := Name(f"new{number}"))
        ticket = Ticket(name)
        await turns.enter(ticket)
        turns.leave(ticket, 1 + number % 7)


def test_callers_who_never_come_back_are_forgotten() -> None:
    async def run() -> None:
        turns = Turns(2)
        debtor = Ticket("debtor")
        await turns.enter(debtor)
        turns.leave(debtor, 100.0)
        remembered: WeakSet[Name] = WeakSet()
        await pass_by(turns, 5000, remembered)
        assert 0 < len(remembered) <= 1100
        async with turns.turn(Ticket("a")), turns.turn(Ticket("b")):
            waits = asyncio.create_task(turns.enter(Ticket("c")))
            for number in range(5000):  # who give up
                remembered.add(name := Name(f"gone{number}"))
                gone = asyncio.create_task(turns.enter(Ticket(name)))
                await asyncio.sleep(0)
                gone.cancel()
            await asyncio.sleep(0)
            del name, gone
            assert len(remembered) <= 1100
        await waits

    asyncio.run(run())


def test_who_was_alone_for_long_does_not_have_to_make_up_for_it() -> None:
    async def run() -> None:
        turns, order = Turns(1), []
        alone = Ticket("alone")
        for _ in range(100):
            await turns.enter(alone)
            turns.leave(alone, 1.0)

        async def visit(name: str) -> None:
            async with turns.turn(Ticket(name)):
                order.append(name)
                await asyncio.sleep(0)

        await asyncio.gather(*[visit(name) for name in ["new"] * 10 + ["alone"] * 10])
        assert order[:10].count("alone") >= 4

    asyncio.run(run())
