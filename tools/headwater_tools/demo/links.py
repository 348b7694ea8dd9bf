"""Which link carried what: bytes through the cords of boards to the broker, and through the air between two.

Counted outside of all that speaks over them, so it shows what was carried, not what was meant to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

MQTT, BLUETOOTH = "MQTT", "Bluetooth"


class Links:
    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.ends: dict[str, frozenset[str]] = {}
        self._counts: dict[str, Callable[[], int]] = {}
        self._seen: list[tuple[float, Mapping[str, int]]] = []  # when, and how many bytes there were by then

    def add(self, one: str, other: str, kind: str, count: Callable[[], int]) -> None:
        """`count()`: bytes so far, in both directions."""
        name = "%s \u2013 %s" % (one, other)
        self.kinds[name] = kind
        self.ends[name] = frozenset((one, other))
        self._counts[name] = count

    def look(self, at_s: float) -> dict[str, int]:
        """Bytes by link since the last look."""
        now = {name: count() for name, count in self._counts.items()}
        before = self._seen[-1][1] if self._seen else dict.fromkeys(now, 0)
        self._seen.append((at_s, now))
        return {name: now[name] - before[name] for name in now}

    def carried(self, from_s: float, to_s: float) -> dict[str, int]:
        """Bytes by link in this time, and until the next look."""
        if not self._seen:
            return dict.fromkeys(self._counts, 0)
        first = max((seen for seen in self._seen if seen[0] <= from_s), default=self._seen[0], key=_when)
        last = min((seen for seen in self._seen if seen[0] >= to_s), default=self._seen[-1], key=_when)
        return {name: last[1][name] - first[1][name] for name in self._counts}

    def totals(self) -> dict[str, int]:
        return {name: count() for name, count in self._counts.items()}

    def of(self, ends: Iterable[str]) -> str:
        """The name of the link between these two."""
        return next(name for name, both in self.ends.items() if both == frozenset(ends))


def alone(carried: Mapping[str, int], name: str) -> bool:
    """Whether this link carried something, and no other one did."""
    return carried[name] > 0 and sum(carried.values()) == carried[name]


def _when(seen: tuple[float, Mapping[str, int]]) -> float:
    return seen[0]
