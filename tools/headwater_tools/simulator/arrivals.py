"""What flash keeps of checkpoints on their way."""

from __future__ import annotations

from headwater.storage import arrival
from headwater.storage.keyspace import B_PARTS, PARTS_MAX

from .world import Node, World


class Arrivals:
    """Flash has the full parts of one checkpoint that arrives, and no others."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __call__(self, node: Node) -> None:
        host = node.host
        if host is None or host.revoked:
            return
        keys = [key for key in range(B_PARTS, B_PARTS + PARTS_MAX) if host.store.blob_size(key)]
        lie = [known for known in host.incoming.values() if arrival.lies(known)]
        full = lie[0][3] // len(lie[0][2]) if lie else 0
        if len(lie) > 1 or keys != list(range(B_PARTS, B_PARTS + full)):
            text = "%s: flash has %d parts of checkpoints, and %d arrive there"
            self.world.error(text % (self.world.name(node.number), len(keys), len(lie)))
