"""Access to the page's port: names of the gateway, tokens, sessions, and limits for each address.

A loopback address requires no token. But a foreign page must not reach the gateway through the browser of a
user who has both open (DNS rebinding), so a request must name the gateway by one of its own names. Any other
address requires a token, as `Authorization: Bearer TOKEN`, as `Basic` with the token as the password, or once
as a form. The form starts a session: a random cookie, which is not the token, expires by itself, and can be
ended. Sessions survive restarts of the gateway; the database holds only hashes of their cookies, and a new
token ends them all.

Wrong tokens slow down their address. An address with many open event streams loses the oldest of them, so no
client can keep others out.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from ..database.engine import Database

COOKIE = "headwater"
SESSION_S = 30 * 86_400  # after it began a session ends,
IDLE_S = 7 * 86_400  # or after it was not used for this long
SESSIONS_MAX = 64
NOTE_S = 3600  # how exactly its use is remembered
FAILURES = 10  # wrong tokens of one address
FAILURES_S = 60.0  # in this time; then it has to wait
ADDRESSES_MAX = 1024
STREAMS_MAX = 64  # event streams that are open at once
STREAMS_PER_ADDRESS = 24
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def same(shown: str, token: str) -> bool:
    """Whether they are equal; the time that it takes does not tell where they differ."""
    return hmac.compare_digest(shown.encode(errors="surrogateescape"), token.encode())


# ---- names


def host_of(header: str) -> str | None:
    """The name in a Host header, without its port; None if there is none."""
    header = header.strip().lower()
    if header.startswith("["):
        name, bracket, port = header[1:].partition("]")
        good = bool(bracket) and (not port or port.startswith(":") and port[1:].isdigit())
    else:
        name, colon, port = header.partition(":")
        good = not colon or port.isdigit()
    return name.rstrip(".") if good and name else None


class Names:
    """The names by which requests may address the gateway."""

    def __init__(self, bind: str, configured: str, machine: str | None = None) -> None:
        self.loopback = is_loopback(bind)
        self.known = {name.lower().rstrip(".") for name in configured.split()} | set(LOCAL_NAMES)
        self.known.add(bind.lower())
        if not self.loopback:
            machine = (socket.gethostname() if machine is None else machine).lower()
            short = machine.partition(".")[0]
            self.known |= {machine, short, short + ".local"}

    def fits(self, header: str) -> bool:
        name = host_of(header)
        if name is None:
            return False
        if name in self.known:
            return True
        # Beyond loopback any address is allowed: rebinding needs a name.
        return _is_address(name) and (is_loopback(name) or not self.loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# ---- tokens and sessions


def shown_token(header: str) -> str | None:
    """The token in an Authorization header; None if there is none."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            text = base64.b64decode(rest.strip(), validate=True).decode("utf-8", "surrogateescape")
        except (binascii.Error, ValueError):
            return ""
        return text.partition(":")[2]
    return None


class Sessions:
    """Cookies of clients that have presented the token."""

    def __init__(self, db: Database, token: str, now: Callable[[], float] = time.time) -> None:
        self.db = db
        self.token = token
        self.now = now
        self._all: dict[str, tuple[int, int]] = {}  # hash -> when it began, and when it was last used
        for ident, since, used in db.query("SELECT id, since, used FROM sessions ORDER BY used"):
            self._all[ident] = (since, used)

    def __len__(self) -> int:
        return len(self._all)

    def _id(self, cookie: str) -> str:
        text = cookie.encode(errors="surrogateescape")
        return hmac.new(self.token.encode(), text, hashlib.sha256).hexdigest()

    def begin(self) -> str:
        """A new session; its cookie."""
        self._expire()
        while len(self._all) >= SESSIONS_MAX:
            self._drop(min(self._all, key=lambda ident: self._all[ident][1]))
        cookie = secrets.token_urlsafe(32)
        now = int(self.now())
        self._put(self._id(cookie), now, now)
        return cookie

    def holds(self, cookie: str) -> bool:
        if not cookie:
            return False
        ident = self._id(cookie)
        if ident not in self._all or self._over(ident):
            return False
        since, used = self._all[ident]
        now = int(self.now())
        if now - used > NOTE_S:
            self._put(ident, since, now)
        return True

    def end(self, cookie: str) -> None:
        ident = self._id(cookie)
        if ident in self._all:
            self._drop(ident)

    def _over(self, ident: str) -> bool:
        since, used = self._all[ident]
        now = self.now()
        return now - since > SESSION_S or now - used > IDLE_S

    def _expire(self) -> None:
        for ident in [ident for ident in self._all if self._over(ident)]:
            self._drop(ident)

    def _put(self, ident: str, since: int, used: int) -> None:
        self._all[ident] = (since, used)
        self.db.execute("INSERT OR REPLACE INTO sessions VALUES(?, ?, ?)", ident, since, used)

    def _drop(self, ident: str) -> None:
        del self._all[ident]
        self.db.execute("DELETE FROM sessions WHERE id = ?", ident)


def address_of(request: web.BaseRequest) -> str:
    """Whose request it is: an address, of IPv6 the network that one customer has."""
    text = (request.remote or "").partition("%")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return "?"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class Failures:
    """Wrong tokens, by address: after too many the address has to wait."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._all: OrderedDict[str, list[float]] = OrderedDict()

    def note(self, address: str) -> None:
        times = self._all.setdefault(address, [])
        times.append(self.now())
        del times[:-FAILURES]
        self._all.move_to_end(address)
        while len(self._all) > ADDRESSES_MAX:
            self._all.popitem(last=False)

    def wait_s(self, address: str) -> float:
        """How long this address has to wait; 0: not at all."""
        times = self._all.get(address, [])
        if len(times) < FAILURES:
            return 0.0
        return max(0.0, FAILURES_S - (self.now() - times[0]))


# ---- event streams


@dataclass(eq=False)
class Stream:
    address: str
    cookie: str  # of its session
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # it is closed in favour of others


class Streams:
    """All open event streams. One more can always be opened: if there are too many, the oldest one of the
    address with the most is closed."""

    def __init__(self, maximum: int = STREAMS_MAX, per_address: int = STREAMS_PER_ADDRESS) -> None:
        self.maximum = maximum
        self.per_address = per_address
        self.open: list[Stream] = []  # the oldest first

    def enter(self, address: str, cookie: str = "") -> Stream:
        mine = [s for s in self.open if s.address == address]
        if len(mine) >= self.per_address:
            self._close(mine[0])
        if len(self.open) >= self.maximum:
            counts: dict[str, int] = {}
            for s in self.open:
                counts[s.address] = counts.get(s.address, 0) + 1
            most = max(counts.values())
            self._close(next(s for s in self.open if counts[s.address] == most))
        stream = Stream(address, cookie)
        self.open.append(stream)
        return stream

    def end(self, cookie: str) -> None:
        """Its session ended."""
        for stream in [s for s in self.open if s.cookie == cookie]:
            self._close(stream)

    def leave(self, stream: Stream) -> None:
        if stream in self.open:
            self.open.remove(stream)

    def _close(self, stream: Stream) -> None:
        self.leave(stream)
        stream.ended.set()
