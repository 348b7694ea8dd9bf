"""Earlier deployments of each process: what `hw deploy --rollback` goes back to.

A process has at most KEPT of them, also after it was undeployed. A version is kept once, and not while it
runs: going back and forth between two versions keeps one plan, not twenty. They are a convenience: if the
database was lost, the process file deploys any version again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headwater.plan import model as plans
from headwater.plan.reader import alike

if TYPE_CHECKING:
    from ..database.engine import Database

KEPT = 5


class Earlier(NamedTuple):
    deployment: int
    plan: bytes
    since_us: int
    until_us: int


class History:
    def __init__(self, db: Database) -> None:
        self.db = db
        self.of: dict[str, list[Earlier]] = {}  # process -> earlier deployments, the newest first
        rows = db.query(
            "SELECT process, deployment, plan, since, until FROM history ORDER BY deployment DESC"
        )
        for process, *row in rows:
            self.of.setdefault(process, []).append(Earlier(*row))

    def add(self, process: str, plan: bytes, since_us: int, until_us: int, present: bytes | None) -> None:
        """A deployment has ended; `present` replaced it, or nothing."""
        entry = Earlier(plans.loads(plan).deployment, plan, since_us, until_us)
        kept = [entry]
        for other in self.of.get(process, []):
            if not alike(other.plan, plan) and not (present and alike(other.plan, present)):
                kept.append(other)
        self.of[process] = kept = kept[:KEPT]
        self.db.execute("DELETE FROM history WHERE process = ?", process)
        for each in kept:
            self.db.execute("INSERT INTO history VALUES(?, ?, ?, ?, ?)", process, *each)
