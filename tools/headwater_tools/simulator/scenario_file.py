"""Histories as readable files: what happens when, and what must come of it.

    # The battery of the hip ends; its operators go on elsewhere.
    process telemonitoring
    seconds 40
    at 0     battery hip 30 % lasts 30
    at 12.5  cut wrist gateway
    at 14    kill chest
    at 20    heal
    at 30    expect rate at wrist
    expect   takeovers 2
    expect   lost 0

Nothing goes wrong but what the file says. `process` names what `--process` may name, or a process file; the
command line may name another one. WORDS has all that can happen. Mistakes are told in one sentence with their
line, and those of names as soon as the process is known.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headwater.plan.model import Plan
from headwater.protocol.moves import COMMAND
from headwater.runtime.gateway_host import GatewayHost
from headwater.runtime.host import Host

from ..errors import UserError
from .batteries import RADIO, Power
from .scenario import Result, Scenario
from .world import SECOND, Hardware, Node

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "scenarios"
SUFFIX = ".scenario"
SECONDS_MAX = 3600
PACES = {"quick": Hardware().pace, "real": Host.PACE}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "=": lambda a, b: a == b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}
# What an expectation without a time may name: counts of a history.
COUNTED = (
    "accepted", "delivered", "lost", "duplicates", "divergent", "out_of_order", "gaps_declared",
    "migrations_planned", "replayed_planned", "migrations_unplanned", "takeovers", "takeovers_needless",
    "replayed", "boots", "nowhere_ms",
)  # fmt: skip
COUNTS_MAX = 1 << 40


class Mistake(Exception):
    """What is wrong with a line, and what to write."""


@dataclass(frozen=True)
class Step:
    """Something that happens, or must hold, at a time; without a time at the end."""

    line: int
    at_us: int | None
    word: str
    rest: tuple[str, ...]

    def text(self) -> str:
        return " ".join((self.word, *self.rest))


@dataclass
class Script:
    path: str
    process: str = ""  # a name of PROCESSES, or a process file; "" where the file leaves that open
    seconds: int = 30
    seed: int = 1
    pace: str = "quick"
    steps: list[Step] = field(default_factory=list)

    def refuse(self, line: int, what: str) -> UserError:
        return UserError("%s:%d: %s" % (self.path, line, what))


def example(name: str) -> Path:
    """The scenario of that name that comes with the simulator."""
    return FOLDER / (name + SUFFIX)


def found(path: str) -> Path:
    """A file, or the example of that name."""
    given = Path(path)
    return example(path) if not given.exists() and example(path).exists() else given


def read(path: str) -> Script:
    """The script of a file. UserError tells its first mistake."""
    place = found(path)
    if place.is_dir():
        raise IsADirectoryError(21, "is a folder: name a scenario file", path)
    try:
        lines = place.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError("%s: is not a text in UTF-8" % path) from None
    script = Script(str(place))
    for number, line in enumerate(lines, 1):
        words = line.split("#")[0].split()
        if words:
            try:
                _take(script, number, words)
            except Mistake as mistake:
                raise script.refuse(number, str(mistake)) from None
    if not script.steps:
        raise UserError("%s: nothing happens in it: write a line like 'at 5 kill hip'" % path)
    return script


def _take(script: Script, number: int, words: list[str]) -> None:
    word, *rest = words
    if word == "at":
        if len(rest) < 2:
            raise Mistake("write 'at SECONDS WHAT', like 'at 5 kill hip'")
        at_us = int(_number(rest[0], 0, SECONDS_MAX) * SECOND)
        _known(rest[1], WORDS, "what can happen")
        script.steps.append(Step(number, at_us, rest[1], tuple(rest[2:])))
    elif word == "expect":
        _expectation(rest)
        script.steps.append(Step(number, None, word, tuple(rest)))
    elif word in ("seconds", "seed"):
        value = int(
            _number(_only(word, rest), 0 if word == "seed" else 1, 1 << 30 if word == "seed" else SECONDS_MAX)
        )
        setattr(script, word, value)
    elif word == "pace":
        script.pace = _known(_only(word, rest), PACES, "a pace")
    elif word == "process":
        script.process = _only(word, rest)
    elif word in WORDS:
        raise Mistake("when does that happen? Write 'at SECONDS %s'" % " ".join(words))
    else:
        raise Mistake(_unknown(word, ("at", "expect", "process", "seconds", "seed", "pace"), "a line"))


def _expectation(rest: Sequence[str]) -> tuple[str, Callable[[int, int], bool], int]:
    if not 2 <= len(rest) <= 3:
        raise Mistake("write 'expect COUNT NUMBER', like 'expect takeovers 1' or 'expect replayed <= 40'")
    _known(rest[0], COUNTED, "a count")
    sign = rest[1] if len(rest) == 3 else "="
    _known(sign, COMPARE, "a comparison")
    return rest[0], COMPARE[sign], int(_number(rest[-1], 0, COUNTS_MAX))


def _only(word: str, rest: Sequence[str]) -> str:
    if len(rest) != 1:
        raise Mistake("%s takes one value" % word)
    return rest[0]


def _number(text: str, low: float, high: float) -> float:
    if not re.fullmatch(r"\d{1,12}(\.\d{1,6})?", text):
        raise Mistake("%r is not a number" % text)
    value = float(text)
    if not low <= value <= high:
        raise Mistake("%s is out of range: give %g to %g" % (text, low, high))
    return value


def _unknown(word: str, known: Sequence[str], what: str) -> str:
    near = difflib.get_close_matches(word, known, 1)
    hint = "did you mean '%s'?" % near[0] if near else "there is: %s" % ", ".join(known)
    return "'%s' is not %s; %s" % (word, what, hint)


def _known(word: str, known: Any, what: str) -> str:
    if word not in known:
        raise Mistake(_unknown(word, list(known), what))
    return word


# ---- played


class Scripted(Scenario):
    """A history in which only what its file says goes wrong, and when."""

    def __init__(self, script: Script, plan: Plan, seed: int) -> None:
        super().__init__(plan, seed, script.seconds, faults=False, made_of=Hardware(pace=PACES[script.pace]))
        self.script = script
        self.power = Power(self.world, self.emptied)
        self.charged: dict[int, bool] = {}
        for step in script.steps:
            try:
                self.prepare(step)
            except Mistake as mistake:
                raise script.refuse(step.line, str(mistake)) from None

    def prepare(self, step: Step) -> None:
        if step.at_us is None:
            return
        if step.at_us > self.storm_us:
            raise Mistake("at %g s the history is over: 'seconds' is %d" % (
                step.at_us / SECOND, self.storm_us // SECOND
            ))  # fmt: skip
        action = WORDS[step.word](self, step.rest)
        self.world.at(step.at_us, partial(self.happen, step, action))

    def happen(self, step: Step, action: Callable[[], Any]) -> None:
        if step.word != "expect":
            self.world.draw(step.word, step.text())
        elif not action():
            self.failed(step)
            return
        else:
            return
        action()

    def failed(self, step: Step, but: str = "") -> None:
        self.world.error("%s:%d: %s%s" % (self.script.path, step.line, step.text(), but))

    def peace(self) -> None:
        self.power.stop()
        super().peace()

    def finish(self) -> Result:
        self.world.after(2 * SECOND, self.close_ended)
        result = super().finish()
        found = {**result.stats, **result.counts}
        for step in self.script.steps:
            if step.at_us is None and not result.errors:
                name, holds, value = _expectation(step.rest)
                if not holds(found.get(name, 0), value):
                    self.failed(step, ", but it is %d" % found.get(name, 0))
        return result

    def emptied(self, node: Node) -> None:
        self.world.draw("battery empty", "the battery of %s is empty" % self.world.name(node.number))
        self.world.kill(node)

    # ---- names

    def host(self, name: str) -> Node:
        hosts = [str(host) for host in self.plan.hosts]
        return self.world.nodes[hosts.index(_known(name, hosts, "a host of this process"))]

    def hosts(self, names: Sequence[str]) -> list[Node]:
        if not names:
            raise Mistake("which host? This process has %s" % ", ".join(map(str, self.plan.hosts)))
        return [self.host(name) for name in names]

    def operator(self, name: str) -> int:
        known = {str(v.name): v.index for v in self.plan.vertices if v.kind}
        return known[_known(name, known, "an operator of this process")]

    def runs_at(self, v: int, node: Node) -> bool:
        return node in self.absence.at(v)


# What can happen: word -> what it makes of the rest of its line.
Made = Callable[[Scripted, Sequence[str]], Callable[[], Any]]


def _each(action: Callable[[Scripted, Node], Any]) -> Made:
    def made(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
        nodes = history.hosts(rest)
        return lambda: [action(history, node) for node in nodes]

    return made


def _crash(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    """crash HOST... [for SECONDS]"""
    names, us = _for(rest)
    nodes = history.hosts(names)

    def act() -> None:
        for node in nodes:
            history.world.crash(node)
            if us:
                history.world.after(us, partial(history.world.boot, node))

    return act


def _for(rest: Sequence[str]) -> tuple[Sequence[str], int]:
    if "for" not in rest:
        return rest, 0
    at = rest.index("for")
    if len(rest) != at + 2:
        raise Mistake("write 'for SECONDS' at the end")
    return rest[:at], int(_number(rest[-1], 0, SECONDS_MAX) * SECOND)


def _ways(history: Scripted, rest: Sequence[str]) -> set[tuple[int, int]]:
    """A: all links of A; A B: the link between them; A to B: one way; A.. from B..: all between the two."""
    if "from" in rest:
        at = rest.index("from")
        some, others = history.hosts(rest[:at]), history.hosts(rest[at + 1 :])
    elif "to" in rest:
        if len(rest) != 3 or rest[1] != "to":
            raise Mistake("write 'HOST to HOST' for one way of a link")
        return {(history.host(rest[0]).number, history.host(rest[2]).number)}
    else:
        if len(rest) > 2:
            raise Mistake("write 'HOST HOST' for one link, 'HOST... from HOST...' for several")
        some, *more = [[node] for node in history.hosts(rest)]
        others = more[0] if more else [n for n in history.world.nodes if n is not some[0]]
    pairs = [(a.number, b.number) for a in some for b in others if a is not b]
    return {*pairs, *[(b, a) for a, b in pairs]}


def _cut(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    names, us = _for(rest)
    ways = _ways(history, names)

    def act() -> None:
        history.world.cut |= ways
        if us:
            history.world.after(us, lambda: history.world.cut.difference_update(ways))

    return act


def _heal(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    if not rest:
        return lambda: history.world.cut.clear()
    ways = _ways(history, rest)
    return lambda: history.world.cut.difference_update(ways)


def _battery(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    """battery HOST PERCENT % [lasts SECONDS]: a full one lasts so long, 60 unless that is given."""
    if len(rest) not in (3, 5) or rest[2] != "%" or (len(rest) == 5 and rest[3] != "lasts"):
        raise Mistake("write 'battery HOST 40 %' or 'battery HOST 40 % lasts 60'")
    node = history.host(rest[0])
    percent = int(_number(rest[1], 0, 100))
    lasts = _number(rest[4], 1, SECONDS_MAX) if len(rest) == 5 else 0
    if not node.number:
        raise Mistake("the gateway is on mains")

    def act() -> None:
        if node.battery is None or lasts:
            history.power.put(node, RADIO, lasts or 60, percent)
        else:
            node.battery.charge(percent)

    return act


def _broker(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    names, us = _for(rest)
    if list(names) != ["away"] or not us:
        raise Mistake("write 'broker away for SECONDS'")

    def act() -> None:
        history.world.broker_us = history.world.now + us

    return act


def _lake(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    word = _known(_only("lake", rest), ("away", "back"), "a state of the lake")

    def act() -> None:
        history.world.outbox.lake_open = word == "back"

    return act


def _outbox(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    word = _known(_only("outbox", rest), ("full", "free"), "a state of the outbox")

    def act() -> None:
        history.world.outbox.full = word == "full"

    return act


def _links(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    """links loss 0.2 [delay MS]"""
    if len(rest) not in (2, 4) or rest[0] != "loss" or (len(rest) == 4 and rest[2] != "delay"):
        raise Mistake("write 'links loss 0.2' or 'links loss 0.2 delay 400' (milliseconds)")
    loss = _number(rest[1], 0, 0.9)
    most = int(_number(rest[3], 1, 10_000) * 1000) if len(rest) == 4 else 30_000

    def act() -> None:
        history.world.loss, history.world.delay_us = loss, (1000, most)

    return act


def _sleep(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    """sleep HOST... for SECONDS: its memory is lost, as in deep sleep."""
    names, us = _for(rest)
    nodes = history.hosts(names)
    if not us:
        raise Mistake("write 'sleep HOST for SECONDS'")

    def act() -> None:
        for node in nodes:
            if node.up:
                _doze(history, node, us)

    return act


def _doze(history: Scripted, node: Node, us: int) -> None:
    world = history.world
    world.call(node, lambda host: host.sleep(node.mono(), node.mono() + us), "sleep")
    world.crash(node)
    world.dozing.add(node.number)

    def wake() -> None:
        world.dozing.discard(node.number)
        world.boot(node)

    world.after(us, wake)


def _start(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    """start OPERATOR HOST: a candidate that is wrong begins it without asking."""
    if len(rest) != 2:
        raise Mistake("write 'start OPERATOR HOST'")
    v, node = history.operator(rest[0]), history.host(rest[1])
    if node.number not in history.plan.vertices[v].hosts:
        raise Mistake("%s is no candidate of %s" % (rest[1], rest[0]))
    return lambda: history.activate(v, history.place[v], node.number)


def _move(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    """move OPERATOR HOST: the host where it runs is told to hand it over."""
    if len(rest) != 2:
        raise Mistake("write 'move OPERATOR HOST'")
    v, node = history.operator(rest[0]), history.host(rest[1])
    if node.number not in history.plan.vertices[v].hosts:
        raise Mistake("%s is no candidate of %s" % (rest[1], rest[0]))

    def act() -> None:
        giver = history.world.nodes[history.place[v]]
        if giver.up:
            history.world.call(giver, lambda host: host.move(v, node.number, COMMAND, giver.mono()), "move")

    return act


def _set(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    """set OPERATOR NAME=VALUE...: parameters, as a person changes them at the gateway."""
    pairs = [word.partition("=") for word in rest[1:]]
    if not pairs or any(not name or not sign or not value for name, sign, value in pairs):
        raise Mistake("write 'set OPERATOR NAME=VALUE'")
    v = history.operator(rest[0])
    try:
        params = {name: json.loads(value) for name, _, value in pairs}
    except ValueError:
        raise Mistake("a value is a number, a list or a text in quotation marks") from None
    return lambda: _asked(history, lambda host: host.configure(v, params))


def _input(close: bool) -> Made:
    def made(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
        if len(rest) != 2:
            raise Mistake(
                "write '%s OPERATOR INPUT', its inputs being numbered from 0"
                % ("close" if close else "reopen")
            )
        v = history.operator(rest[0])
        p = int(_number(rest[1], 0, len(history.plan.ins(v)) - 1))
        if not close:
            return lambda: _reopen(history, v, p)
        return lambda: _asked(history, lambda host: host.close(v, p))

    return made


def _reopen(history: Scripted, v: int, p: int) -> None:
    history.closed.add((v, p))
    history.reopen(v, p)


def _asked(history: Scripted, ask: Callable[[GatewayHost], Any]) -> None:
    """Ask the gateway for a change, if it is up; it may refuse with a sentence."""

    def asking(host: GatewayHost) -> None:
        try:
            ask(host)
        except ValueError as error:
            history.world.draw("change refused by the gateway", str(error))

    if history.world.nodes[0].up:
        history.world.call(history.world.nodes[0], asking, "change")


def _expect(history: Scripted, rest: Sequence[str]) -> Callable[[], Any]:
    """expect OPERATOR at HOST; expect HOST up, down or dead; expect HOST battery <= 20"""
    if len(rest) == 3 and rest[1] == "at":
        v, node = history.operator(rest[0]), history.host(rest[2])
        return lambda: history.runs_at(v, node)
    if len(rest) == 4 and rest[1] == "battery":
        node = history.host(rest[0])
        holds, value = COMPARE[_known(rest[2], COMPARE, "a comparison")], int(_number(rest[3], 0, 100))
        return lambda: node.battery is not None and holds(node.battery.percent, value)
    if len(rest) == 2:
        node, state = history.host(rest[0]), _known(rest[1], ("up", "down", "dead"), "a state of a host")
        return lambda: state == ("up" if node.up else "dead" if node.dead else "down")
    raise Mistake("write 'expect OPERATOR at HOST', 'expect HOST dead' or 'expect HOST battery <= 20'")


WORDS: dict[str, Made] = {
    "battery": _battery,
    "boot": _each(lambda history, node: history.world.boot(node)),
    "broker": _broker,
    "close": _input(True),
    "crash": _crash,
    "cut": _cut,
    "erase": _each(lambda history, node: history.world.erase(node)),
    "expect": _expect,
    "heal": _heal,
    "kill": _each(lambda history, node: history.world.kill(node)),
    "lake": _lake,
    "links": _links,
    "move": _move,
    "outbox": _outbox,
    "reopen": _input(False),
    "set": _set,
    "sleep": _sleep,
    "start": _start,
}


__all__ = ["FOLDER", "SUFFIX", "WORDS", "Script", "Scripted", "example", "read"]
