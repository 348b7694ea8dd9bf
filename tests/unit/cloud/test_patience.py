"""Patience with what may pass: pauses that grow, told each time, and an end."""

from __future__ import annotations

import threading

import pytest
from headwater_cloud import patience
from headwater_cloud.errors import LakeFailed
from headwater_cloud.patience import FORGET_S, LONGEST_S, Patience


class Clock(threading.Event):
    """A time that passes only while somebody waits."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now += timeout
        return False


def test_pauses_grow_until_patience_is_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(), list[str]()
    monkeypatch.setattr(patience, "time", clock)
    patient = Patience(600, said.append, clock)
    begun = clock.now
    pauses = []
    with pytest.raises(LakeFailed, match="^a batch failed: no answer$"):
        while True:
            before = clock.now
            patient.wait("a batch failed", OSError("no answer"))
            pauses.append(clock.now - before)
    assert clock.now - begun == 600
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, LONGEST_S] and max(pauses) == LONGEST_S
    assert said[1] == "a batch failed (no answer): trying again in 2 s, giving up after 599 s"
    assert len(said) == len(pauses)


def test_a_failure_long_ago_is_forgotten_and_what_is_done_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(), list[str]()
    monkeypatch.setattr(patience, "time", clock)
    patient = Patience(600, said.append, clock)
    for _ in range(9):
        patient.wait("it failed", OSError("x"))
    clock.now += FORGET_S + 1
    patient.wait("it failed", OSError("x"))
    assert said[-1].endswith("trying again in 1 s, giving up after 600 s")
    patient.wait("it failed", OSError("x"))
    patient.over()
    patient.wait("it failed", OSError("x"))
    assert said[-1].endswith("trying again in 1 s, giving up after 600 s")


def test_without_patience_the_first_failure_is_the_last() -> None:
    with pytest.raises(LakeFailed):
        Patience(0, print, threading.Event()).wait("a batch failed", OSError("no answer"))
