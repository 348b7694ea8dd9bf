"""`hw check --explain`: how long batteries last, where operators go and why, and whether to start elsewhere.

What boards draw is in their energy profiles; the proposal is that of headwater/process/proposal.py, which the
gateway asks too. All lives are estimates from below: see headwater/process/energy.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from headwater.plan import draws
from headwater.plan.placement import FOREVER, HEAP, LINK, WIDTH
from headwater.process.builder import GATEWAY, Host, near
from headwater.process.check import Report
from headwater.process.energy import Board, Energy, energy
from headwater.process.problems import ERROR, WARNING, Problem
from headwater.process.proposal import NOTICED, life, on, propose
from headwater.process.sizing import kb

from .boards import energy as profiles
from .errors import UserError
from .image.profiles import Profile, profile
from .image.profiles import names as kinds

_LEVEL = re.compile(r"(?:(\d{1,3})%|(\d{1,2}(?:\.\d{1,3})?)V)\Z")
_RADIOS = {"off": "", "on": ", Bluetooth too", "only": ", Bluetooth alone"}
VOLTS_MIN, VOLTS_MAX = 2.5, 4.5


def board_problems(hosts: Sequence[Host]) -> list[Problem]:
    """Hosts whose kind of board has no profile, or whose memory does not hold both radios."""
    problems = []
    for host in hosts:
        where = "host '%s'" % host.name
        if isinstance(host.board, str) and host.board not in kinds():
            what = "unknown board %r%s" % (host.board, near(host.board, kinds()))
            problems.append(Problem(ERROR, host.where, where, what, "Use one of %s" % ", ".join(kinds())))
        elif isinstance(host.board, str) and host.bluetooth == "on":
            problems += _radios(host, profile(host.board), where)
    return problems


def _radios(host: Host, board: Profile, where: str) -> list[Problem]:
    what = "a board of kind %s has memory for Wi-Fi and Bluetooth at once %s" % (
        board.name,
        board.both_radios,
    )
    if board.both_radios == "no":
        what = "a board of kind %s has memory for one radio, Wi-Fi or Bluetooth" % board.name
        cure = 'Give bluetooth="only" or "off", as `hw provision --bluetooth` has it'
        return [Problem(ERROR, host.where, where, what, cure)]
    if board.both_radios == "with PSRAM":
        return [Problem(WARNING, host.where, where, what, 'Use a module that has it, or bluetooth="only"')]
    if board.both_radios == "without TLS":
        cure = 'Give bluetooth="only", or another kind of board'
        return [Problem(WARNING, host.where, where, what, cure)]
    return []


class Explanation:
    """Of a process without errors; `batteries`: what `--battery` says, HOST=LEVEL each."""

    def __init__(self, report: Report, batteries: Sequence[str]) -> None:
        assert report.decoded is not None
        self.plan = report.decoded
        self.sizing = report.sizing
        self.hosts = report.sizing.hosts
        boards = {host.name: self._board(host) for host in self.hosts}
        self.percent = levels(batteries, self.hosts, boards)
        self.energy: Energy = energy(report.sizing, self.plan, boards, self.percent, profiles.work())
        self.case = self.energy.case
        self.first = self.energy.first
        self.proposal = propose(self.case, self.first, NOTICED)
        self.best = self.proposal.places if self.proposal else self.first

    def _board(self, host: Host) -> Board | None:
        if host.name == GATEWAY:
            return None
        return profiles.board(host.board or profiles.ASSUMED)

    # -- for people

    def lines(self) -> list[str]:
        out = ["", "Batteries, estimated from below: highest rates, longest blocks."]
        out += self._assumptions()
        out += _table(self._host_rows())
        out += ["", "Operators, and the time until the first battery is empty if one of them ran elsewhere:"]
        out += _table(self._operator_rows())
        return [*out, "", *self._proposal()]

    def _assumptions(self) -> list[str]:
        out = []
        assumed = [
            h.name for h, b in zip(self.hosts, self.energy.boards) if b is not None and h.board is None
        ]
        if assumed:
            text = 'Board %s assumed for %s: declare it, like p.host("%s", board="%s", battery_mah=400).'
            out.append(text % (profiles.ASSUMED, _and(assumed), assumed[0], profiles.ASSUMED))
        if self.energy.unlimited:
            text = "Nothing limits the rate of %s, so it counts nothing: give most_hz=."
            out.append(text % _and(self.energy.unlimited))
        return out

    def _host_rows(self) -> list[tuple[str, ...]]:
        now, then = self.case.draws(self.first), self.case.lives(self.best)
        lives = self.case.lives(self.first)
        assert now is not None
        moved = self.best != self.first
        rows = [("host", "board", "battery", "draws", "lasts", *(("at best",) if moved else ()))]
        for h, host in enumerate(self.hosts):
            board = self.energy.boards[h]
            kind = (host.board or "-") + _RADIOS[host.bluetooth]
            row: tuple[str, ...] = (host.name, kind, "mains", "-", "-")
            if board is not None:
                battery = "%d mAh, %d %%" % (self.energy.capacity_mah[h], self.percent.get(host.name, 100))
                row = (
                    host.name,
                    board.name + _RADIOS[host.bluetooth],
                    battery,
                    "%.2f mA" % (now[h] / 1e6),
                    life(lives[h]),
                )
            rows.append((*row, life(then[h])) if moved else row)
        return rows

    def _operator_rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("operator", "goes to", "elsewhere", "first empty", "why not")]
        for vertex in self.plan.vertices:
            if not vertex.kind:
                continue
            here = self.best[vertex.index]
            name, place = vertex.name, self.hosts[here].name
            for h in vertex.hosts:
                if h != here:
                    rows.append((name, place, self.hosts[h].name, *self._elsewhere(vertex.index, h)))
                    name = place = ""
            if name:
                rows.append((name, place, "-", "-", "no other candidate"))
        return rows

    def _elsewhere(self, v: int, h: int) -> tuple[str, str]:
        places = list(self.best)
        places[v] = h
        limit = self.refusal(places, v)
        if limit:
            return "-", limit
        best, there = self.case.worth(self.best), self.case.worth(places)
        if not there:
            return "-", "no host has a battery"
        shown = self._first_empty(places)
        if there[0] < best[0]:
            return shown, "shorter"
        if there < best:
            return shown, "another battery lasts less long"
        if there > best:
            return (
                shown,
                "not noticeably longer" if self.best == self.first else "longer: the search missed it",
            )
        return shown, "as long"

    def refusal(self, places: list[int], v: int) -> str:
        """The limit that a placement breaks, in words; "" if it keeps all."""
        broken = self.case.breaks(places)
        if not broken:
            return ""
        reason, where, _ = broken[0]
        if reason == HEAP:
            need = kb(self.case.heaps(places)[where]) + self.sizing.runtime_kb(where)
            host = self.hosts[where]
            return "heap: %s needs %d KB and has %d KB" % (host.name, need, host.heap_kb)
        if reason == WIDTH:
            return "floats: it needs %d bits" % self.case.vertices[where].width
        return "no way to each other" if reason == LINK else "not a candidate"

    def _first_empty(self, places: list[int]) -> str:
        lives = self.case.lives(places)
        h = min(range(len(lives)), key=lambda i: (lives[i], i))
        return "%s (%s)" % (life(lives[h]), self.hosts[h].name)

    def _proposal(self) -> list[str]:
        if not self.case.worth(self.first):
            return ["No host has a battery: every placement is as good."]
        found = self.proposal
        if not found:
            return ["No placement within the candidates lasts noticeably longer than the declared one."]
        more = "" if found.percent is None else ", %d %% more" % found.percent
        text = "Proposal: the %s lasts %s instead of %s%s."
        out = [text % (found.which, life(found.then_s), life(found.now_s), more)]
        names = [host.name for host in self.hosts]
        for v in found.moves:
            vertex = self.plan.vertices[v]
            out.append("  %s: %s" % (vertex.name, on(names, vertex.hosts, found.places[v])))
        alone = []
        for v in found.moves:
            paces = [draws.pace(life) for life in self.case.moved(self.first, v, self.best[v])]
            if draws.gains(paces[:2], paces[2:]):
                alone.append(v)
        which = _and([self.plan.vertices[v].name for v in alone]) if alone else "none of them"
        out.append("Alone, %s would spare the batteries of its two hosts by a sixth." % which)
        return out

    # -- for programs

    def as_json(self) -> dict[str, Any]:
        def named(places: Sequence[int]) -> dict[str, str]:
            return {v.name: self.hosts[places[v.index]].name for v in self.plan.vertices if v.kind}

        def links(places: Sequence[int]) -> list[dict[str, str]]:
            """By which links hosts speak to each other: one at either end."""
            found = []
            for pair, (bytes_mhz, frames_mhz) in sorted(self.case.traffic(places).items()):
                a, b = divmod(pair, len(self.hosts))
                names = self.case.links(a, b, bytes_mhz, frames_mhz)
                if names:
                    ends = (self.hosts[a].name, self.hosts[b].name, *names)
                    found.append(dict(zip(("from", "to", "sends", "receives"), ends, strict=True)))
            return found

        def told(places: Sequence[int]) -> dict[str, Any]:
            lives = dict(zip([host.name for host in self.hosts], self.case.lives(places)))
            flee = [self.case.flee_s(places, h, host.flash_kb * 1024) for h, host in enumerate(self.hosts)]
            return {
                "places": named(places),
                "links": links(places),
                "lives_s": {name: None if s == FOREVER else s for name, s in lives.items()},
                # A host with its log full hands over what it runs when it has less than this.
                "flee_s": {name: s for name, s in zip(lives, flee) if lives[name] != FOREVER},
            }

        return {"declared": told(self.first), "best": told(self.best)}


def levels(words: Sequence[str], hosts: Sequence[Host], boards: dict[str, Board | None]) -> dict[str, int]:
    """Percent left by host, from HOST=60% or HOST=3.72V each."""
    found: dict[str, int] = {}
    names = [host.name for host in hosts]
    for word in words:
        name, _, level = word.partition("=")
        match = _LEVEL.match(level)
        if match is None:
            raise UserError(
                "--battery %s: write HOST=PERCENT%% or HOST=VOLTS, like wrist=60%% or wrist=3.72V" % word
            )
        if name not in names:
            close = difflib.get_close_matches(name, names, 1, 0.6)
            hint = ", did you mean '%s'?" % close[0] if close else ":"
            raise UserError(
                "--battery %s: no host '%s'%s the process has %s" % (word, name, hint, ", ".join(names))
            )
        host, board = hosts[names.index(name)], boards[name]
        if board is None or host.battery_mah == 0:
            raise UserError("--battery %s: host '%s' runs on mains; it has no battery" % (word, name))
        if name in found:
            raise UserError("--battery %s: host '%s' is given twice" % (word, name))
        if match[1]:
            found[name] = int(match[1])
            if found[name] > 100:
                raise UserError("--battery %s: give 0 to 100 percent" % word)
        else:
            volts = float(match[2])
            if not VOLTS_MIN <= volts <= VOLTS_MAX:
                raise UserError("--battery %s: give %g to %g volts" % (word, VOLTS_MIN, VOLTS_MAX))
            found[name] = board.percent(round(volts * 1000))
    return found


def _and(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else words[0]


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
