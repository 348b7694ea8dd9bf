"""Random processes from a seed: valid ones, of every shape that the simulator should see.

A process of one to three sources, or five on many boards, and one to ten operators, or many on one board:
chains, diamonds, joins, unions, windows, feedback, unused outputs, one to eight hosts, any strategy, level
and durability, buffers near their minimum and intervals so short that a simulation of seconds sees many
checkpoints.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from headwater.data.alphabet import TYPES, Alphabet
from headwater.process import Process, Stream, operator
from headwater.process.builder import Spec
from headwater.process.check import Needs, check, outputs

Make = Callable[[random.Random], Spec]


def _type(kind: str, **params: Callable[[random.Random], Any]) -> Make:
    return lambda rng: operator(kind)(**{name: draw(rng) for name, draw in params.items()})


def _span(low: int, high: int) -> Callable[[random.Random], int]:
    return lambda rng: rng.randint(low, high)


def _what(rng: random.Random) -> str:
    return " ".join(sorted(rng.sample(("count", "sum", "mean", "min", "max"), rng.randint(1, 2))))


def _sliding_time(rng: random.Random) -> Spec:
    step_us = rng.randint(100_000, 500_000)
    return operator("Sliding")(us=step_us * rng.randint(1, 5), step_us=step_us, what=_what(rng))


# Types with one input of any integers up to 32 bits, cheap and deterministic.
SINGLE: dict[str, Make] = {
    "Affine": _type("Affine", num=_span(-3, 3), offset=_span(-50, 50), shift=_span(0, 2)),
    "Fir": _type("Fir", coeffs=lambda rng: [rng.randint(-2, 3) for _ in range(rng.randint(1, 5))]),
    "ExpAverage": _type("ExpAverage", shift=_span(1, 4)),
    "Median": _type("Median", k=lambda rng: rng.choice((3, 5))),
    "Decimate": _type("Decimate", k=_span(2, 3)),
    "Difference": _type("Difference"),
    "Counter": lambda rng: operator("Counter")(us=60 * rng.randint(1000, 100_000)),
    "Rate": lambda rng: operator("Rate")(us=rng.randint(200_000, 2_000_000)),
}
# The same, for streams of one field.
ONE_FIELD: dict[str, Make] = {
    "Average": _type("Average", count=_span(2, 8)),
    "AverageOfTime": lambda rng: operator("Average")(us=rng.randint(100_000, 900_000), keep=16),
    "DeadBand": _type("DeadBand", width=_span(0, 40)),
    "Threshold": lambda rng: operator("Threshold")(high=rng.randint(20, 60), low=rng.randint(-40, 19)),
    "Debounce": lambda rng: operator("Debounce")(us=rng.randint(50_000, 500_000)),
    "Tumbling": lambda rng: operator("Tumbling")(count=rng.randint(2, 6), what=_what(rng)),
    "TumblingTime": lambda rng: operator("Tumbling")(
        us=rng.randint(200_000, 2_000_000), what=_what(rng), empty=rng.randint(0, 1), holes=rng.randint(0, 1)
    ),
    "Sliding": lambda rng: operator("Sliding")(
        count=rng.randint(3, 8), step=rng.randint(1, 3), what=_what(rng)
    ),
    "SlidingTime": _sliding_time,
}
FIELDS_MAX = 4


class _Graph:
    def __init__(self, seed: int, attempt: int) -> None:
        self.rng = rng = random.Random("headwater process %d%s" % (seed, " again" * attempt))
        boards = rng.choice((1, 2, 3, 3, 4, 4, 5, 7))
        self.cyclic = rng.random() < 0.3
        self.large = boards > 4
        # most operators on one board
        self.crowded = not self.large and random.Random("crowd %d" % seed).random() < 0.2
        every = rng.randint(20, 60)
        self.process = Process(
            "random%d" % seed,
            checkpoints=rng.choice(("uncoordinated", "extended", "extended") if self.cyclic else STRATEGIES),
            every=every,
            level=rng.choice(("local", "peer", "peers=2") if boards > 1 else ("local", "peer")),
            batch=rng.randint(4, min(16, every)),
            batch_ms=rng.choice((200, 500, 1000)),
            link_ms=rng.choice((100, 250)),
        )
        self.hosts = ["board%d" % (i + 1) for i in range(boards)]
        for host in self.hosts:
            self.process.host(host, heap_kb=4096)
        self.streams: list[Stream] = []
        self.alphabets: list[Alphabet] = []
        self.used: set[int] = set()
        # Drawn apart: without them a seed has the process that it always had.
        self.whims = random.Random("absent %d" % seed)
        self.absent = self.whims.random() < 0.25 and boards > 1 and not (self.cyclic or self.crowded)
        self.silent: list[int] = []  # Attenuates whose feedback port is still open
        self.idle = random.Random("unused %d" % seed)  # which outputs are disabled

    def add(self, stream: Stream) -> None:
        self.streams.append(stream)
        self.alphabets.append(outputs(stream.vertex)[stream.port])

    def sources(self) -> None:
        rng = self.rng
        for i in range(rng.randint(1, 3) + 2 * self.large):
            texts = ["v:i16", "v:i16", "v:u8", "w:i16", "v:i16 x:u8"]
            if not (self.cyclic or self.crowded):
                texts.append("a:i32 b:i32 c:u32 d:i32")  # fills a log; in a loop it would be too much
            text = rng.choice(texts)
            regular = rng.random() < 0.75
            rates = (5, 10, 20, 30, 50) if self.cyclic or self.crowded else (5, 10, 20, 30, 50, 100)
            self.streams.append(
                self.process.source(
                    "s%d" % (i + 1),
                    text,
                    rate_hz=rng.choice(rates) if regular else None,
                    most_hz=None if regular else 10,
                    on=rng.choice(self.hosts),
                )
            )
            self.alphabets.append(Alphabet(text))

    def choose(self, fits: Callable[[Alphabet], bool], other: int | None = None) -> int | None:
        """A stream that fits; preferably one that is not used yet."""
        found = [i for i, a in enumerate(self.alphabets) if i != other and fits(a)]
        fresh = [i for i in found if i not in self.used]
        if not found:
            return None
        return self.rng.choice(fresh if fresh and self.rng.random() < 0.6 else found)

    def stream(self, i: int) -> Stream:
        self.used.add(i)
        stream = self.streams[i]
        if stream.vertex.kind and self.rng.random() < 0.2:
            stream = stream.buffered(on_full="spill")
        return stream

    def operators(self, attempt: int) -> None:
        rng = self.rng
        wanted = rng.randint(2 if self.cyclic else 1, 10 if self.large else 8)
        if self.crowded:  # on one board, as many as the table of its log holds
            wanted = rng.randint(12, max(12, 24 - attempt))
        if self.cyclic:
            self.attenuate()
        while sum(1 for v in self.process.vertices if v.kind) < wanted:
            draw = rng.random()
            if self.crowded and sum(1 for v in self.process.vertices if v.kind) >= 8:
                draw = 1.0
            if draw < 0.15:
                self.sum_join()
            elif draw < 0.3:
                self.union()
            elif draw < 0.4:
                self.hold()
            elif draw < 0.55:
                self.expression()
            else:
                self.single()

    def place(self, spec: Spec) -> Spec:
        """Most stay where their input is produced; the rest go anywhere, some with backups of their own."""
        rng = self.rng
        if self.crowded and rng.random() < 0.97:
            return spec.on(self.hosts[0])
        if rng.random() < (0.2 if self.large else 0.5):
            return spec
        host = rng.choice([*self.hosts, "gateway"])
        backups = [h for h in [*self.hosts, "gateway"] if h != host]
        if (self.process.level != "local" or self.large) and rng.random() < (0.8 if self.large else 0.4):
            rng.shuffle(backups)
            return spec.on(host, backup=backups[: rng.randint(1, len(backups))])
        return spec.on(host)

    def single(self) -> None:
        i = self.choose(_narrow)
        if i is None:
            return
        one = len(self.alphabets[i].names) == 1
        kinds = {**SINGLE, **ONE_FIELD} if one else SINGLE
        spec = kinds[self.rng.choice(sorted(kinds))](self.rng)
        self.add(self.place(spec)(self.stream(i)))

    def expression(self) -> None:
        """Where, Map or Route over the first field."""
        rng = self.rng
        i = self.choose(_narrow)
        if i is None:
            return
        name = self.alphabets[i].names[0]
        limit = rng.randint(-20, 60)
        kind = rng.choice(("Where", "Map", "Route"))
        if kind == "Where":
            spec = operator("Where")("%s > limit" % name, limit=limit)
        elif kind == "Map":
            text = rng.choice(("v:i16", "v:u8", "w:i16", "m:i32"))
            field, _, width = text.partition(":")
            spec = operator("Map")(text, **{field: "sat%s(%s * 3 - %d)" % (_saturation(width), name, limit)})
        else:
            spec = operator("Route")("%s > limit" % name, limit=limit)
        stream = self.place(spec)(self.stream(i))
        for port in range(len(outputs(stream.vertex))):
            self.add(stream.out(port))

    def sum_join(self) -> None:
        i = self.choose(_single)
        j = self.choose(_single, i)
        if i is not None and j is not None:
            spec = operator("SumJoin")(us=self.rng.randint(100_000, 900_000), keep=16)
            self.add(self.place(spec)(self.stream(i), self.stream(j)))

    def union(self) -> None:
        i = self.choose(lambda a: True)
        assert i is not None
        j = self.choose(lambda a: a.text == self.alphabets[i].text, i)
        if j is not None:
            self.add(self.place(operator("Union")())(self.stream(i), self.stream(j)))

    def hold(self) -> None:
        i = self.choose(lambda a: len(a.names) < FIELDS_MAX)
        if i is None:
            return
        taken = set(self.alphabets[i].names)
        j = self.choose(lambda a: len(a.names) < FIELDS_MAX and not taken & set(a.names), i)
        if j is not None:
            self.add(self.place(operator("Hold")())(self.stream(i), self.stream(j)))

    def attenuate(self) -> None:
        i = self.choose(_single)
        if i is None:
            return
        spec = operator("Attenuate")(threshold=self.rng.randint(0, 60), shift=self.rng.randint(1, 3))
        self.silent.append(len(self.streams))
        self.streams.append(self.place(spec)(self.stream(i)))
        self.alphabets.append(self.alphabets[i])

    def absences(self) -> None:
        """Joins that go on without an input, an alternative for a stream, and an alarm of a board."""
        if not self.absent:
            return
        whims = self.whims
        joins = [w for w in self.process.wires if w.vertex is not None and w.port]
        for wire in joins:
            if whims.random() < 0.5:
                wire.absent_ms = 0  # until it is known how long at least
        first = whims.randrange(len(self.streams))
        text = self.alphabets[first].text
        others = [i for i, a in enumerate(self.alphabets) if a.text == text and i != first]
        if others:
            other = whims.choice(others)
            self.add(self.streams[first].otherwise(self.streams[other], after_ms=0))
            self.used |= {first, other}
        self.process.alarm(self.streams[first], silent_ms=60_000, on=whims.choice(self.hosts))

    def feedback(self) -> None:
        """Close the loops, from as far down as allowed."""
        for i in self.silent:
            behind = {i}
            for wire in self.process.wires:
                if wire.vertex is not None and any(
                    self.streams[k].vertex is wire.stream.vertex for k in behind
                ):
                    behind |= {k for k, s in enumerate(self.streams) if s.vertex is wire.vertex}
            ends = [k for k in sorted(behind) if _single(self.alphabets[k])]
            k = self.rng.choice(ends[-2:])
            self.process.feedback(self.streams[k], self.streams[i], port=1, delay_ms=1)
            self.used.add(k)

    def lakes(self) -> None:
        rng = self.rng
        durable = ("flash", "gateway", "gateway", "lake")
        for i, stream in enumerate(self.streams):
            last = i + 1 == len(self.streams)
            if i in self.used and rng.random() < 0.7 and not last:
                continue
            if i not in self.used and stream.vertex.kind and not last and self.idle.random() < 0.2:
                stream.unused(stream.port)
                continue
            self.process.lake(
                "random/o%d" % (i + 1),
                stream,
                durable=rng.choice(("gateway", "lake", "lake") if self.crowded else durable),
                on_full=rng.choice(
                    ("block", "block", "spill", "drop_oldest")
                    if stream.vertex.kind
                    else ("block", "block", "drop_oldest", "drop_newest")
                ),
                accept_loss=True,
            )

    def sizes(self) -> None:
        """Delays, buffers and logs, at or near the minimum."""
        rng = self.rng
        needs = Needs(self.process)
        for wire, least in needs.delay_ms.items():
            wire.delay_ms = least + rng.randint(0, 500)
        needs = Needs(self.process)
        for wire, least in needs.cap.items():
            if rng.random() < 0.7:
                wire.cap = least + rng.choice((0, 0, 1, self.process.batch))
        for wire, least in needs.absent_ms.items():
            wire.absent_ms = least + self.whims.choice((0, 500, 3000))
        needs = Needs(self.process)
        for host in self.process.hosts:
            host.flash_kb = max(64, needs.flash_kb[host.name] + rng.choice((0, 16, 64)))


STRATEGIES = ("uncoordinated", "ecoc", "extended")


def _saturation(kind: str) -> str:
    return kind[1:] if kind[0] == "i" else kind


def _narrow(a: Alphabet) -> bool:
    return all(TYPES[t][1] <= 4 for t in a.types)


def _single(a: Alphabet) -> bool:
    return len(a.names) == 1 and _narrow(a)


def random_process(seed: int) -> Process:
    """The process of a seed: always the same, always valid. A process that the check refuses is drawn
    again."""
    for attempt in itertools.count():
        graph = _Graph(seed, attempt)
        graph.sources()
        graph.operators(attempt)
        graph.absences()
        graph.feedback()
        graph.lakes()
        graph.sizes()
        if not check(graph.process).errors():
            return graph.process
    raise AssertionError("unreachable")
