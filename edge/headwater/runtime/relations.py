# Which operators and hosts matter to a host, where operators have backups: of these words.py keeps account.
# Loaded when a host starts.

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plan.model import Plan


# The operators with a backup that concern this host: it may run them, keep their checkpoints, or produce for
# them; and the gateway, which may have to run any.
def operators(plan: "Plan", me: int) -> list[int]:
    found = []
    for v in plan.vertices:
        if v.kind and len(v.hosts) > 1:
            producers = [h for e in plan.ins(v.index) for h in plan.vertices[e.src].hosts]
            if not me or me in plan.keepers(v.index) or me in producers:
                found.append(v.index)
    return found


# The hosts that may run these operators, keep their checkpoints, or produce for them; and the gateway.
def hosts(plan: "Plan", me: int, operators: list[int]) -> list[int]:
    found = []
    for v in operators:
        for h in plan.keepers(v) + [h for e in plan.ins(v) for h in plan.vertices[e.src].hosts] + [0]:
            if h != me and h not in found:
                found.append(h)
    return found
