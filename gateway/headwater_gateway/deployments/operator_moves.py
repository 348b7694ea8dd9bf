"""An operator is moved because a person asked for it: the gateway asks its host, and waits for what comes of
it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headwater.offboard import reasons
from headwater.protocol import offers

from .. import UserError

if TYPE_CHECKING:
    from ..hosted import HostedProcess

WAIT_S = 20.0  # a request is answered within this: the next one for the same move goes on waiting
_LOOK_S = 0.1
_REPEAT_S = 1.0  # a board that has not answered is asked again


def vertex_of(hosted: HostedProcess, operator: str) -> Any:
    """The operator of that name, or UserError."""
    try:
        return hosted.operator(operator)
    except KeyError:
        known = ", ".join(v.name for v in hosted.plan.vertices if v.kind)
        text = "process %s has no operator %s; it has %s"
        raise UserError(text % (hosted.plan.name, operator, known))


def host_of(hosted: HostedProcess, vertex: Any, name: str) -> int:
    """The number of the host of that name, which may run the operator; or UserError."""
    hosts = hosted.plan.hosts
    known = ", ".join(hosts[h] for h in vertex.hosts)
    if name not in hosts:
        text = "process %s has no host %s; operator %s may run on %s"
        raise UserError(text % (hosted.plan.name, name, vertex.name, known))
    number = hosts.index(name)
    if number not in vertex.hosts:
        text = "operator %s may not run on %s: the process file lets it run on %s; add %s with `backup=`"
        raise UserError(text % (vertex.name, name, known, name))
    return number


async def move(hosted: HostedProcess, operator: str, host: str) -> dict[str, Any]:
    """Have an operator moved; what came of it, or that it is under way."""
    vertex = vertex_of(hosted, operator)
    to = host_of(hosted, vertex, host)
    source = hosted.plan.hosts[hosted.host.where[vertex.index][2]]
    end = asyncio.get_running_loop().time() + WAIT_S
    outcome = offers.PENDING
    looks = 0
    while outcome == offers.PENDING and asyncio.get_running_loop().time() < end:
        if looks % int(_REPEAT_S / _LOOK_S) == 0:
            hosted.move(vertex.index, to)
        looks += 1
        _, asked, outcome = hosted.host.asked[vertex.index]
        if asked != to:
            outcome = offers.PENDING  # somebody else has asked for another move since: ask again
        if outcome == offers.PENDING:
            await asyncio.sleep(_LOOK_S)
    return {
        "process": hosted.plan.name,
        "operator": vertex.name,
        "from": source,
        "host": host,
        "outcome": outcome_of(outcome),
        "reason": told(outcome, host) or (unheard(hosted, vertex) if outcome == offers.PENDING else ""),
    }


def outcome_of(outcome: int) -> str:
    if outcome == offers.OK:
        return "moved"
    if outcome == offers.HERE:
        return "already there"
    return "under way" if outcome == offers.PENDING else "refused"


def unheard(hosted: HostedProcess, vertex: Any) -> str:
    """Why a move that was asked for has not begun; empty where its host may have heard of it."""
    host = hosted.host
    at = host.where[vertex.index][2]
    if at == host.me or host.words is None or not host.words.dead(at):
        return ""
    return "%s, where it runs, does not answer" % hosted.plan.hosts[at]


def told(outcome: int, host: str) -> str:
    """Why it was not moved; empty if it was, or may be yet."""
    return "" if outcome in (offers.OK, offers.PENDING) else reasons.refused(outcome, host)
