"""A hosted process: one process at the gateway, as host 0 of its plan: `headwater` on the database.

Outgoing frames wait for the commit that covers their content: an acknowledgement is true when it is sent.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from headwater.offboard import reasons
from headwater.plan import model as plans
from headwater.plan.model import Plan
from headwater.protocol.sessions import TAKEN, Peer
from headwater.runtime.gateway_host import GatewayHost

from .database.engine import Database
from .database.outbox import Outbox, OutboxStreams
from .keys import Keys
from .site_clock import SiteClock, mono_us

_log = logging.getLogger("headwater.hosted")

FRAME_MAX = 512  # bytes of a frame to a board


class HostedProcess:
    def __init__(
        self,
        db: Database,
        ends: OutboxStreams,
        keys: Keys,
        data: bytes,
        numbers: Mapping[str, int],
        publish: Callable[[str, bytes], None],
        clock: SiteClock,
        acked: Callable[[str, str, int], int],
        learn: bool = False,
        room: Callable[[str], int] | None = None,
    ) -> None:
        """`data`: the plan; `numbers`: registry number of every board; `publish(board, frame)` sends;
        `clock`: the site's, for all processes.
        `room(board)`: frames that go to a board now, where a link to it may be slow.
        `learn`: boards run this plan already, and a lost database knew its state."""
        self.db = db
        self.data = data
        self.plan: Plan = plans.loads(data)
        learn = learn and not db.has_space(self.plan.name, self.plan.hash)
        self.store = db.space(self.plan.name, self.plan.hash)
        self.outbox = Outbox(ends, self.plan, partial(acked, self.plan.name))
        self.publish = publish
        self.broken = 0  # frames whose handling failed by a defect of ours
        self.keys = keys
        pairs = {i: keys.board(numbers[name]) for i, name in enumerate(self.plan.hosts) if i}
        self.host = GatewayHost(
            self.plan, 0, self.store, {0: b"", **pairs}, clock, self._send, _nonce, self.outbox, FRAME_MAX
        )
        if room is not None:
            wide = room
            self.host.exchange.pace_by(lambda to: wide(self.plan.hosts[to]))
            for number in pairs:
                self.host.exchange.hide(number, True)  # such links do not encrypt themselves
        self.host.start(mono_us(), learn)

    @property
    def name(self) -> str:
        return str(self.plan.name)

    def _send(self, to: int, frame: bytes) -> None:
        self.db.after_commit(partial(self.publish, self.plan.hosts[to], bytes(frame)))

    def receive(self, frame: bytes, bare: bool = False) -> bool:
        """A frame of a board; bare: over a link that does not encrypt itself. Whether it was genuine."""
        try:
            return self.host.receive(frame, mono_us(), bare)
        except Exception:
            # An authentic frame whose handling fails must not stop the others.
            self.broken += 1
            _log.exception("process %s: a frame could not be handled", self.name)
            return True

    def settle(self) -> None:
        """Do what follows from the received frames."""
        if self.host.due:
            self.pump()

    def pump(self) -> None:
        self.host.now = mono_us()
        self.host.pump()

    def tick(self) -> None:
        self.host.tick(mono_us())

    # ---- decisions

    def configure(self, operator: str, values: dict[str, Any]) -> int:
        """Change parameters of an operator while it runs; the number of the change."""
        self.host.now = mono_us()
        return int(self.host.configure(self.operator(operator).index, values))

    def move(self, v: int, to: int) -> None:
        """Have an operator moved to another host; `host.asked` has what came of it."""
        self.host.ask_move(v, to, mono_us())

    def close(self, v: int, port: int, reopen: bool, inc: int) -> int:
        """An operator goes on without one of its inputs, or takes it again; the number of the change."""
        self.host.now = mono_us()
        if reopen:
            return int(self.host.reopen(v, port, inc, self.host.site()))
        return int(self.host.close(v, port))

    # ---- boards that are lost

    def lose(self, name: str, log: int) -> None:
        """This board is lost, with that log number. ValueError says why that cannot be."""
        self.host.now = mono_us()
        self.host.lose(self.plan.hosts.index(name), log)

    def refuse(self, name: str) -> None:
        """Refuse what is sealed with the present key of this lost board."""
        self.host.exchange.refuse_key(self.plan.hosts.index(name))

    def readmit(self, name: str, registered: int) -> None:
        """Speak to this board with the key of its new registry number from now on."""
        number = self.plan.hosts.index(name)
        key, log, boot = self.keys.board(registered), self.store.log_number, self.host.boot_number
        peer = Peer(key, 0, log, boot, number, self.plan.hash, _nonce)
        self.host.now = mono_us()
        self.host.exchange.refuse_key(number, peer)

    def give_up(self, v: int, at: int, number: int) -> None:
        """Operator v, which waits at that host under the epoch of this number, gives up."""
        self.host.give_up(v, at, number, mono_us())

    def unconfirmed(self, number: int) -> list[int]:
        """Boards that have not confirmed yet that this host is lost."""
        from headwater.runtime import losses

        answers = self.host.without.get(number, {})
        boards = range(1, len(self.plan.hosts))
        return [h for h in boards if h not in answers and not losses.away(self.host, h)]

    def operator(self, name: str) -> Any:
        for v in self.plan.vertices:
            if v.name == name and v.kind:
                return v
        raise KeyError(name)

    # ---- its state

    def heard(self) -> Iterator[tuple[str, int]]:
        """Every board of the process, and how many of its frames were accepted."""
        for number, link in self.host.exchange.links.items():
            yield self.plan.hosts[number], link.peer.counts[TAKEN]

    def dropped(self) -> dict[str, int]:
        """Messages and frames that were refused, by reason."""
        return {reasons.text(reason): n for reason, n in self.host.dropped.items()}

    def press(self) -> None:
        """Request checkpoints for what is not safe yet: while a process drains, no interval ends any more."""
        for port in self.host.ports.values():
            if port.readers and port.ring.last > min(reader.safe for reader in port.readers):
                port.press()

    def made(self) -> int:
        """Entries that the operators here have put out, in all."""
        return sum(int(port.ring.last) for port in self.host.ports.values())

    def unsafe(self) -> int:
        """Entries of this process that only the gateway has, neither taken nor in the database."""
        count = 0
        for port in self.host.ports.values():
            for reader in port.readers:
                count += max(0, port.ring.last - reader.safe)
        for end in self.host.ends:
            e = end.inputs[0]
            count += max(0, e.cur.xi - self.outbox.durable(e.edge.index, e.inc))
        return count


def _nonce() -> int:
    return secrets.randbits(64)
