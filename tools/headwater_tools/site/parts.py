"""The parts of a running site: broker, gateway and sink as processes, boards as virtual boards."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from pathlib import Path

from ..boards import site_board
from ..boards.virtual import VirtualBoard
from ..demo.subprocesses import Part as Process
from .place import Place

LOG_MAX = 10_000_000  # bytes; a larger log of an earlier run makes room
SINK_TRIGGER_S = 2
STATUS = re.compile(r"\w+ -?\d+ s, boot \d+, ")
PAGE = re.compile(r"http://\S+:\d+")
# What Spark and its JVM say at every start, and which is no news.
NOISE = ("WARNING: Using incubator", "NOTE: Picked up", "Picked up ")


class Program:
    """A part that is a process, with a log in the folder `logs` of the site."""

    needs: tuple[str, ...] = ()
    slow_s = 20.0
    patience_s = 15.0  # to end when it is told to

    def __init__(self, place: Place, name: str, words: list[str]) -> None:
        self.name = name
        self.site = place
        self.log = place.logs / (name + ".log")
        if self.log.exists() and self.log.stat().st_size > LOG_MAX:
            self.log.replace(self.log.with_name(name + ".1.log"))
        self.process = Process(name, [sys.executable, "-P", "-m", *words], self.log)
        self.began = 0  # where in the log the present start begins
        self.read = 0  # up to where its lines were told

    def start(self) -> None:
        self.began = self.read = self.log.stat().st_size if self.log.exists() else 0
        self.process.start()

    def running(self) -> bool:
        return self.process.running()

    def up(self) -> str:
        raise NotImplementedError

    def stop(self) -> None:
        self.process.stop(self.patience_s)

    def said(self) -> str:
        """Its log since the present start."""
        with open(self.log, errors="replace") as log:
            log.seek(self.began)
            return log.read()

    def tail(self) -> list[str]:
        return [line for line in self.said().splitlines() if line.strip() and not line.startswith(NOISE)]

    def place(self) -> str:
        return os.path.relpath(self.log)

    def news(self) -> list[str]:
        """New lines of its log that matter, once it is up."""
        with open(self.log, "rb") as log:
            log.seek(self.read)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.read += len(whole)
        lines = whole.decode(errors="replace").splitlines()
        return [line for line in lines if line.strip() and not line.startswith(NOISE) and self.matters(line)]

    def matters(self, line: str) -> bool:
        return True


class Broker(Program):
    def __init__(self, place: Place) -> None:
        super().__init__(place, "broker", ["headwater_tools", "broker", "run", str(place.folder)])

    def up(self) -> str:
        return "Mosquitto on port %d" % self.site.config.mqtt.port if " running\n" in self.said() else ""

    def matters(self, line: str) -> bool:
        return "rror" in line or "not authorised" in line


class Gateway(Program):
    needs: tuple[str, ...] = ("broker",)

    def __init__(self, place: Place) -> None:
        super().__init__(place, "gateway", ["headwater_gateway", str(place.folder / "gateway.toml")])

    def up(self) -> str:
        state = self.site.state()
        if state is None or not state["broker"]["up"]:
            return ""
        page = PAGE.search(self.said())
        return "status page %s/" % (page[0] if page else "")

    def matters(self, line: str) -> bool:
        return False  # its events come from its state


class Sink(Program):
    slow_s = 90.0
    # It ends the batch that it has begun. One that takes longer is killed, which a sink survives: the next
    # start takes the batch up again.
    patience_s = 10.0

    def __init__(self, place: Place) -> None:
        places = [p if "://" in p else os.path.abspath(p) for p in (place.landing, place.lake)]
        words = ["headwater_tools", "sink", *places, "--trigger", str(SINK_TRIGGER_S)]
        super().__init__(place, "sink", words)

    def up(self) -> str:
        if ", from version " not in self.said():
            return ""
        return "Spark takes segments of %s into the lake %s" % (self.site.landing, self.site.lake)

    def matters(self, line: str) -> bool:
        return ", from version " not in line and not line.startswith("batch ")


class Board:
    """A virtual board of the site."""

    needs: tuple[str, ...] = ("gateway",)
    slow_s = 60.0

    def __init__(self, place: Place, name: str) -> None:
        self.name = name
        self.board: VirtualBoard = site_board.make(place, name, {}, on_line=self._line)
        self._linked = False
        self._news: deque[str] = deque(maxlen=100)

    def _line(self, line: str) -> None:
        if STATUS.match(line):
            self._linked = self._linked or ", linked, " in line
        elif not line.startswith(("Traceback", "  ")):
            self._news.append(line)

    def start(self) -> None:
        self._linked = False
        self.board.start()

    def running(self) -> bool:
        return self.board.powered

    def up(self) -> str:
        return "32-bit MicroPython, heap of %s, linked" % site_board.HEAP if self._linked else ""

    def stop(self) -> None:
        self.board.kill()

    def tail(self) -> list[str]:
        return list(self.board.lines)

    def place(self) -> str:
        return os.path.relpath(self.board.folder / "console.log")

    def news(self) -> list[str]:
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found


def local_landing(place: Place) -> None:
    """The sink wants a landing zone that is there; the gateway makes it with its first segment."""
    if "://" not in place.landing:
        Path(place.landing).mkdir(parents=True, exist_ok=True)
