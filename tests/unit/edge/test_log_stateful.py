"""The log against its model, in lives that Hypothesis invents, without and with power cuts."""

from __future__ import annotations

from typing import Any

import pytest
from headwater.storage.log import Log
from headwater.testing.cut_flash import KINDS, CutFlash, PowerCut
from headwater_tools.proof.flash_sweep import LOG_NUMBER, Model, differences, perform
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

pytestmark = pytest.mark.slow

STREAMS = st.sampled_from((1, 2, 700))
KEYS = st.integers(0, 4)
SIZES = st.integers(1, 180)
SECTORS, SECTOR_SIZE, RESERVE = 14, 768, (300,)


class LogLives(RuleBasedStateMachine):
    cuts = False

    def __init__(self) -> None:
        super().__init__()
        self.flash = CutFlash(SECTORS, SECTOR_SIZE, 11)
        Log.format(self.flash, LOG_NUMBER)
        self.model = Model()
        self.salt = 0
        self.mount()

    def mount(self) -> None:
        self.log = Log(self.flash, RESERVE, 256)
        self.log.mount()

    def step(self, *step: Any) -> None:
        """Does it; after a cut, finds out whether it has happened."""
        self.salt += 1
        try:
            done = perform(self.log, self.model, step, self.salt)
        except PowerCut:
            self.flash.revive()
            self.mount()
            after = self.model.after(step, self.salt)
            if differences(self.log, after) == []:
                self.model = after
            return
        if done:
            self.model = self.model.after(step, self.salt)

    @rule(stream=STREAMS, n=st.integers(1, 400), size=SIZES, far=st.sampled_from((0, 0, 0, 1 << 33)))
    def append(self, stream: int, n: int, size: int, far: int) -> None:
        self.step("append", stream, n, size, far)

    @rule(stream=STREAMS, n=st.integers(2, 12), size=SIZES)
    def append_many(self, stream: int, n: int, size: int) -> None:
        for _ in range(n):
            self.step("append", stream, 1, size)

    @rule(stream=STREAMS, back=st.integers(0, 500))
    def trim(self, stream: int, back: int) -> None:
        self.step("trim", stream, back)

    @rule()
    def sync(self) -> None:
        self.step("sync")

    @rule()
    def idle(self) -> None:
        self.step("idle")

    @rule(stream=STREAMS, jump=st.sampled_from((0, 1, 1000, 1 << 35)))
    @precondition(lambda self: self.model.streams)
    def start(self, stream: int, jump: int) -> None:
        if stream in self.model.streams:
            self.step("start", stream, jump)

    @rule(stream=STREAMS)
    def forget(self, stream: int) -> None:
        self.step("forget", stream)

    @rule(key=KEYS, size=st.integers(0, 40))
    def put(self, key: int, size: int) -> None:
        self.step("put", key, size)

    @rule(key=KEYS)
    def drop(self, key: int) -> None:
        self.step("drop", key)

    @rule(key=KEYS, size=st.one_of(SIZES, st.integers(0, 1200)))
    def blob(self, key: int, size: int) -> None:
        self.step("blob", key, size)

    @rule(src=KEYS, dst=KEYS)
    def rename(self, src: int, dst: int) -> None:
        self.step("rename", src, dst)

    @rule(key=KEYS)
    def drop_blob(self, key: int) -> None:
        self.step("dropblob", key)

    @rule()
    def restart(self) -> None:
        self.mount()

    @invariant()
    def log_and_model_agree(self) -> None:
        assert differences(self.log, self.model) == []


class LogLivesWithCuts(LogLives):
    cuts = True

    @rule(ahead=st.integers(0, 12), byte=st.integers(0, 300), kind=st.integers(0, len(KINDS) - 1))
    def cut_soon(self, ahead: int, byte: int, kind: int) -> None:
        self.flash.arm(self.flash.op + ahead, byte, kind)

    @rule(ahead=st.integers(0, 12), byte=st.integers(0, 300), kind=st.integers(0, len(KINDS) - 1))
    def cut_while_mounting(self, ahead: int, byte: int, kind: int) -> None:
        self.flash.arm(self.flash.op + ahead, byte, kind)
        try:
            self.mount()
        except PowerCut:
            self.flash.revive()
            self.mount()

    @rule()
    def settle(self) -> None:
        self.flash.settle()

    def mount(self) -> None:
        try:
            super().mount()
        except PowerCut:
            self.flash.revive()
            super().mount()


LIVES = settings(max_examples=40, stateful_step_count=40)
TestLogLives = LogLives.TestCase
TestLogLives.settings = LIVES
TestLogLivesWithCuts = LogLivesWithCuts.TestCase
TestLogLivesWithCuts.settings = LIVES
