# What operators of a host wait for that do not run, and which of them is being handed over. A board reports
# it in its status, so that a person sees for whom an operator waits. Nothing here changes anything.
#
# The numbers travel in messages: docs/spec.md has the same table.

from ..offboard.compat import TYPE_CHECKING, const
from .instance import EXPOSED, FETCHING, PAUSED, RECALLING, RUNNING, WAITING

if TYPE_CHECKING:
    from typing import Any

    from .host import Host
    from .instance import Instance

CHECKPOINT = const(1)  # a checkpoint that was named: its position, and the hosts that have it
KEEPERS = const(2)  # which checkpoints are stored: the hosts that have not answered
HOLDERS = const(3)  # its checkpoint is to be stored: its position, and the hosts that have not stored it
PRODUCERS = const(4)  # it began without any producer, and asks first: the hosts of its producers
MOVE = const(5)  # nothing: it is being handed over to this host; to none yet, where the list is empty
RESTART = const(6)  # a checkpoint from before a restart may yet be acknowledged
PLACE = const(7)  # it has given up (giving_up.py): where it goes on, and the hosts of producers to tell that
ENTRIES = const(8)  # entries that are lost, while its consumers have what it made of them


# Operators that do not run, or are handed over: [vertex, what it waits for, position or nothing, hosts,
# number of its epoch].
def rows(host: "Host") -> "list[list[Any]]":
    found = _rows(host)
    for row in found:
        row.append(host.instances[row[0]].epoch[0])
    return found


def _rows(host: "Host") -> "list[list[Any]]":
    found: "list[list[Any]]" = []
    for v in sorted(host.instances):
        inst = host.instances[v]
        if host.giving and host.giving.v == v and inst.status in (RUNNING, PAUSED):
            found.append([v, MOVE, [], [host.giving.to] if host.giving.to >= 0 else []])
        elif inst.blind:
            found.append([v, PRODUCERS, [], _others(host, [host.where[e.edge.src][2] for e in inst.inputs])])
        elif inst.anew:
            found.append([v, PLACE, [], sorted(set(inst.anew.missing()))])
        elif inst.status == FETCHING:
            holders = _others(host, inst.fetch_from or inst.vertex.hosts)
            found.append([v, CHECKPOINT, list(inst.target), holders])
        elif inst.status == RECALLING:
            found.append([v, KEEPERS, [], sorted(inst.unheard)])
        elif inst.status == EXPOSED:
            found.append([v, HOLDERS] + _unstored(host, inst))
        elif inst.status == WAITING:
            found.append([v, RESTART, [], []])
        elif inst.stuck():
            found.append([v, ENTRIES, [], []])
    return found


# Position of the checkpoint that is on its way to keepers, and those that have not stored it.
def _unstored(host: "Host", inst: "Instance") -> "list[list[int]]":
    push = host.pushes.get(inst.vertex.index)
    if not push:
        return [[], []]
    keepers = _others(host, host.plan.keepers(inst.vertex.index))
    return [list(push[0]), [h for h in keepers if h not in push[1] and h not in host.lost]]


# Each once, and without this host.
def _others(host: "Host", hosts: "Any") -> "list[int]":
    return sorted(set(hosts) - set([host.me]))
