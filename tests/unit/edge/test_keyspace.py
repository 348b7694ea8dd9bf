"""The keys of a host's store: each belongs to one thing, and nobody else writes them down."""

from __future__ import annotations

import ast
import re

from headwater.plan.reader import EDGES_MAX, HOSTS_MAX, OUT_PORTS_MAX, VERTICES_MAX
from headwater.storage import keyspace
from headwater_tools import environment

FACTS_OF_VERTICES = "F_INC F_OP F_WHERE F_NEXT F_TAKEN F_SETTLED".split()
FACTS_OF_HOSTS = ["F_LOST"]
FACTS_OF_EDGES = "F_MET F_READER F_GAPS".split()
BLOBS_OF_VERTICES = "B_DECIDED B_VALUES".split()


def ranges(prefix: str) -> list[tuple[int, int]]:
    """First and last key of everything whose name begins so, as large a plan as there may be."""
    found = []
    for name, key in vars(keyspace).items():
        if name.startswith(prefix) and name != "B_CHANGES":
            of_vertex = name in FACTS_OF_VERTICES + BLOBS_OF_VERTICES
            count = VERTICES_MAX if of_vertex else EDGES_MAX if name in FACTS_OF_EDGES else 1
            count = HOSTS_MAX if name in FACTS_OF_HOSTS else count
            count = keyspace.PARTS_MAX if name == "B_PARTS" else count
            found.append((key, key + count - 1))
    return found


def apart(found: list[tuple[int, int]]) -> bool:
    found = sorted(found)
    return all(a[1] < b[0] for a, b in zip(found, found[1:], strict=False))


def test_no_two_facts_share_a_key() -> None:
    assert apart(ranges("F_"))
    assert not apart([*ranges("F_"), (keyspace.F_OP + VERTICES_MAX - 1, keyspace.F_OP + VERTICES_MAX - 1)])


def test_no_two_blobs_share_a_key() -> None:
    slots = (keyspace.PERMANENT, keyspace.PENDING, keyspace.PENDING + 1, keyspace.HELD)
    checkpoints = [keyspace.checkpoint_key(v, slot) for v in range(VERTICES_MAX) for slot in slots]
    grants = [keyspace.change_key(v, number) for v in range(VERTICES_MAX) for number in range(1, 65)]
    assert len({*checkpoints, *grants}) == len(checkpoints) + len(grants)
    assert apart([*ranges("B_"), (min(checkpoints), max(checkpoints)), (min(grants), max(grants))])
    assert all(keyspace.checkpoint_of(key) is None for key, _ in ranges("B_"))


def test_keys_of_streams_and_checkpoints_can_be_told_back() -> None:
    for v in range(VERTICES_MAX):
        for port in range(OUT_PORTS_MAX):
            assert keyspace.stream_of(keyspace.stream_key(v, port)) == (v, port)
        for slot in range(4):
            assert keyspace.checkpoint_of(keyspace.checkpoint_key(v, slot)) == (v, slot)


def test_the_specification_has_the_same_keys() -> None:
    text = (environment.ROOT / "docs/spec.md").read_text()
    section = text[text.index("Everything lies in the flash log: streams, facts (small) and blobs. Keys:") :]
    said = {int(number, 16) for number in re.findall(r"^\| (0x[0-9a-f]{4})\b", section, re.M)}
    have = {key for name, key in vars(keyspace).items() if name[:2] in ("F_", "B_")}
    assert have == said


def test_no_other_module_of_the_edge_computes_a_key() -> None:
    """A key is a name of keyspace, a call of its functions, or such a name plus a vertex or edge."""
    calls = {
        "get",
        "put",
        "drop",
        "get_blob",
        "put_blob",
        "drop_blob",
        "blob_size",
        "read_blob",
        "rename_blob",
    }
    streams = {"append_run", "read_run", "start_stream", "forget", "tail", "trim"}
    wrong = []
    for path in sorted((environment.ROOT / "edge" / "headwater").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            if node.func.attr not in calls | streams or "store" not in ast.unparse(node.func.value):
                continue
            key = node.args[0]
            if (
                isinstance(key, ast.Constant)
                or isinstance(key, ast.BinOp)
                and not isinstance(key.op, ast.Add)
            ):
                wrong.append("%s:%d %s" % (path.name, node.lineno, ast.unparse(key)))
    assert wrong == []
