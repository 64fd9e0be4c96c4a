"""When images count as unanswered."""

import time

import pytest

from captioner_server.captioning.answers import AnswerWatch


@pytest.mark.parametrize(
    ("work_s", "withdrawn", "stalled"),
    [(0.01, True, False), (0.9, True, True), (0.01, False, True)],
    ids=["callers that go at once", "callers that wait in vain", "images that are refused"],
)
def test_callers_that_go_at_once_do_not_make_a_server_seem_stalled(
    monkeypatch: pytest.MonkeyPatch, work_s: float, withdrawn: bool, stalled: bool
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = AnswerWatch()
    for _ in range(20):
        watch.begin()
        now += work_s
        watch.end(answered=False, withdrawn=withdrawn)
        now += 1
    assert watch.stalled(10) is stalled
    watch.begin()
    watch.end(answered=True)
    assert not watch.stalled(10)
