"""Numbers of deployments: each is given once and never again, even after the database was lost.

The number is part of the plan's hash (docs/spec.md, "Plan"), and the hash is the incarnation of the
operators' streams of that deployment in the lake. If two deployments of a process had the same number, the
lake would drop the outputs of the second as known. So the next number is above every number that this
database has given and that any board has reported, and its hash is not an incarnation that the lake's
acknowledgements, the landing zone or the outbox already name.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.data import msgpack
from headwater.plan import reader

from ..database.engine import Database

REPORTED_MAX = 1 << 62  # a board that reports more is not believed: half of all numbers are left


class Numbers:
    def __init__(self, db: Database, used: Callable[[int], bool]) -> None:
        """`used(incarnation)`: the lake, or what is on its way there, knows it."""
        self.db = db
        self.used = used
        known = dict(db.query("SELECT key, value FROM meta WHERE key IN ('deployment', 'given')"))
        self.highest: int = known.get("deployment", 0)  # given or reported
        self.given: int = known.get("given", 0)  # given by this database

    def reported(self, number: object) -> None:
        """A board runs a deployment of this number."""
        if isinstance(number, int) and self.highest < number < REPORTED_MAX:
            self.highest = number
            self._put("deployment", number)

    def stamp(self, data: bytes) -> bytes:
        """The plan as a deployment of its own, under the next number."""
        process = msgpack.loads(data)[1]
        number = self.highest + 1
        while self.used(int.from_bytes(reader.plan_hash(process, number), "big")):
            number += 1
        self.highest = self.given = number
        self._put("deployment", number)
        self._put("given", number)
        return bytes(reader.numbered(data, number))

    def _put(self, key: str, value: int) -> None:
        self.db.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", key, value)
