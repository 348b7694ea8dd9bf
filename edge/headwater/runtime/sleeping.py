# A host that sleeps wakes up into a new boot: what it has counted of the silence of others (words.py) is kept
# in its flash meanwhile. Loaded when it falls asleep, and when it wakes up.

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING, const
from ..storage.keyspace import F_SILENT

if TYPE_CHECKING:
    from .words import Words

_KEPT_MAX = const(8)  # suspected operators of which it is kept; twice as many hosts


# It sleeps from now on, for so long.
def sleep(words: "Words", us: int) -> None:
    words.sleeps_for(us // 1000000)
    waits = [s.kept() for s in words.suspects.values()][:_KEPT_MAX]
    silent = [[words.mute[words.at[h]] // 1000, h] for h in words.hosts]
    silent.sort()
    kept = [words.sleeps, words.listened // 1000, silent[-2 * _KEPT_MAX :], waits]
    words.host.store.put(F_SILENT, msgpack.dumps(kept))


# It slept, and this was kept. It is taken once: a loss of power begins the count again.
def woken(words: "Words", kept: bytes) -> None:
    sleeps, listened, silent, waits = msgpack.loads(kept)
    words.host.store.drop(F_SILENT)
    words.woke(sleeps, listened, silent)
    if waits:
        from . import watching

        for each in waits:
            watching.again(words, each)
