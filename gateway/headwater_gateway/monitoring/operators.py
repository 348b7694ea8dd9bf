"""Operators as people see them: where each runs, since when and why; what it waits for, and for whom.

A host reports its operators that do not run (headwater.runtime.standing). That is true while the host is up.
Otherwise the operator waits for its host, or for a candidate that takes it over; and right after a start of
the gateway nothing is known before the host has reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.plan.model import UNSAFE
from headwater.protocol.position import further
from headwater.runtime import standing
from headwater.storage import checkpoint_file
from headwater.storage.keyspace import HELD, PERMANENT, checkpoint_key, stream_key

from .. import given_up
from ..deployments import progress

if TYPE_CHECKING:
    from headwater.plan.model import Vertex

    from ..deployments.switching import Process
    from ..service import Service

RUNS, WAITS, MOVES, UNKNOWN = DOES = ("runs", "waits", "moves", "unknown")


def shown(service: Service, process: Process, v: Vertex) -> dict[str, Any]:
    """What is known of an operator beside its checkpoint and parameters."""
    hosted = process.hosted
    assert hosted is not None
    move = service.observer.moves.of(hosted.plan, v.name)
    does, waits = _stands(service, process, v)
    return {
        "candidates": [{"host": hosted.plan.hosts[h], "link": _link(service, process, h)} for h in v.hosts],
        "moved": move.view() if move else None,
        "since_us": move.at_us if move else process.since_us,
        "does": does,
        "waits": waits,
    }


def waiting(processes: dict[str, Any]) -> list[dict[str, str]]:
    """All that waits on the site, and for whom: [what, name, text]. `processes`: as the snapshot has them."""
    found = []
    for name, process in processes.items():
        if process["learning"]:
            found.append({"process": name, "what": "process", "name": name, "text": process["learning"]})
        for text in process["waits"]:
            found.append({"process": name, "what": "process", "name": name, "text": text})
        for v in process["vertices"]:
            if v["does"] in (WAITS, MOVES):
                found.append({"process": name, "what": "operator", "name": v["name"], "text": v["waits"]})
            for change in v["open"]:
                text = change["what"] + ": " + (change["waits"] or "its host has not taken it yet")
                found.append({"process": name, "what": "change", "name": v["name"], "text": text})
    return found


def energy(status: dict[str, Any]) -> dict[str, int] | None:
    """What a board knows of its battery: percent, and seconds that are left. None on mains, or unknown."""
    told = status.get("energy")
    return {"percent": told[0], "left_s": told[1], "draw_ua": told[2]} if told else None


def _stands(service: Service, process: Process, v: Vertex) -> tuple[str, str]:
    """What an operator does, and what it waits for, in a sentence that follows its name."""
    hosted = process.hosted
    assert hosted is not None
    plan, host = hosted.plan, hosted.host
    number = host.where[v.index][2]
    name = plan.hosts[number]
    if not number:
        if v.index not in host.instances:
            return WAITS, "starts on %s" % name
        return _told(service, process, v, host.waits())
    board = service.boards.all[name]
    if not board.heard:
        return UNKNOWN, "%s has not reported since the gateway started" % name
    state = service.standing(board)
    if state.word not in (progress.RUNNING, progress.IS_DRAINED, progress.DRAINS):
        for wait in given_up.waiting(service, process):
            if wait.vertex == v.index:
                return WAITS, words(service, process, wait.what, wait.position, wait.hosts)
        others = ", ".join(_named(service, process, h) for h in v.hosts if h != number)
        return WAITS, "waits: %s%s" % (state.text, "; it may start on %s" % others if others else "")
    return _told(service, process, v, board.status.get("waits") or [])


def _told(service: Service, process: Process, v: Vertex, rows: list[list[Any]]) -> tuple[str, str]:
    for vertex, what, position, hosts, _ in rows:
        if vertex == v.index:
            return MOVES if what == standing.MOVE else WAITS, words(service, process, what, position, hosts)
    return RUNS, ""


def words(service: Service, process: Process, what: int, position: list[int], hosts: list[int]) -> str:
    hosted = process.hosted
    assert hosted is not None
    whom = ", ".join(_named(service, process, h) for h in hosts if h < len(hosted.plan.hosts))
    covers = " · ".join(str(xi) for xi in position[:-2])
    which = "its checkpoint that covers %s" % covers if covers else "its checkpoint"
    if what == standing.MOVE:
        return "is being handed over to %s" % whom if whom else "looks for a host that takes it"
    if what == standing.CHECKPOINT:
        return "waits for %s, stored on %s" % (which, whom or "no host that can be asked")
    if what == standing.KEEPERS:
        return "waits to hear which checkpoint of it is stored on %s" % (whom or "its other hosts")
    if what == standing.HOLDERS:
        return "waits until %s is stored on enough hosts%s" % (
            which,
            "; not yet on %s" % whom if whom else "",
        )
    if what == standing.PRODUCERS:
        return "began while its producers were out of reach, and asks them first: %s" % whom
    if what == standing.RESTART:
        return "waits to learn whether its last checkpoint was acknowledged, since its host restarted"
    if what == standing.PLACE:
        return "has given up, and %s" % ("waits to hear from %s" % whom if whom else "looks for a place")
    if what == standing.ENTRIES:
        return "waits for entries that are lost or on a silent board; its consumers have what it made of them"
    return "waits"


def _named(service: Service, process: Process, number: int) -> str:
    """A host, and its link unless it is up."""
    assert process.hosted is not None
    link = _link(service, process, number)
    name = str(process.hosted.plan.hosts[number])
    return name if link == "up" else "%s (%s)" % (name, link)


def _link(service: Service, process: Process, number: int) -> str:
    assert process.hosted is not None
    if not number:
        return "up"
    return service.link_of(service.boards.all[process.hosted.plan.hosts[number]])


# ---- checkpoints


def covered(host: Any, v: int, safe: dict[int, int]) -> list[int] | None:
    """What a permanent checkpoint of an operator covers, wherever it is kept: one that is kept here tells it;
    for any other, the hosts that feed the operator know up to where they need not keep their entries.

    `safe`: key of a stream -> what all its consumers have made safe."""
    plan = host.plan
    known = permanent(host, v)
    if plan.strategy == UNSAFE:
        return known
    feeds = sorted((e.dport, stream_key(e.src, e.sport)) for e in plan.edges if e.dst == v)
    found = known[:-2] if known else [0] * len(feeds)
    if len(found) != len(feeds):
        return known
    best = [max(xi, safe.get(stream, 0)) for xi, (_, stream) in zip(found, feeds, strict=True)]
    return [*best, *(known[-2:] if known else (0, 0))] if known or any(best) else None


def permanent(host: Any, v: int) -> list[int] | None:
    """Position of the furthest permanent checkpoint that this host has: its own, or one held for another."""
    best: list[int] | None = None
    for slot in (PERMANENT, HELD):
        place = checkpoint_file.place(host.plan.vertices[v], host.store, checkpoint_key(v, slot))
        if place and (best is None or further(place[1], best)):
            best = place[1]
    return best
