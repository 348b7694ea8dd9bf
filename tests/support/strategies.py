"""Hypothesis strategies: what property tests draw from, in one place."""

from collections.abc import Sequence

from headwater.data.alphabet import TYPES, Alphabet
from headwater.process import Process
from headwater_tools.simulator.random_process import random_process
from hypothesis import strategies as st

SEEDS = st.integers(0, 1_000_000)
TYPE_NAMES = tuple(sorted(TYPES))


def names() -> st.SearchStrategy[str]:
    """Names of fields, vertices, hosts, parameters."""
    return st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,31}", fullmatch=True)


def alphabets(types: Sequence[str] = TYPE_NAMES, fields_max: int = 4) -> st.SearchStrategy[Alphabet]:
    """Alphabets of one to `fields_max` fields."""
    fields = st.lists(st.tuples(names(), st.sampled_from(types)), min_size=1, max_size=fields_max)
    unique = fields.filter(lambda rows: len({name for name, _ in rows}) == len(rows))
    return unique.map(lambda rows: Alphabet(" ".join(name + ":" + kind for name, kind in rows)))


def processes() -> st.SearchStrategy[Process]:
    """Valid processes of every shape."""
    return SEEDS.map(random_process)


def mutations(data: bytes) -> st.SearchStrategy[bytes]:
    """Bytes near `data`: some changed, cut, repeated or put in."""
    positions = st.integers(0, max(0, len(data) - 1))
    change = st.tuples(positions, st.binary(min_size=1, max_size=4), st.sampled_from(("set", "put", "cut")))

    def apply(changes: Sequence[tuple[int, bytes, str]]) -> bytes:
        out = bytearray(data)
        for at, piece, how in changes:
            at = min(at, len(out))
            if how == "set":
                out[at : at + len(piece)] = piece
            elif how == "put":
                out[at:at] = piece
            else:
                del out[at : at + len(piece)]
        return bytes(out)

    return st.lists(change, min_size=1, max_size=4).map(apply)
