"""Cases of placement for tests: random ones, the longest life by brute force, and the golden vectors.

`python tests/support/placements.py` (with edge and tools in PYTHONPATH) writes tests/data/placements.jsonl.
"""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

from headwater.plan import placement
from headwater.plan.placement import MAINS, OUTSIDE, Case, Edge, Host, Vertex

GOLDEN = Path(__file__).parents[1] / "data" / "placements.jsonl"
WIFI, BLE = "wifi", "ble"


def host(rng: random.Random, mains: bool = False) -> Host:
    links = {}
    if mains or rng.random() < 0.9:
        links[WIFI] = (rng.randint(1, 90_000), rng.randint(1, 40_000), rng.randint(0, 4_000_000))
    if mains or not links or rng.random() < 0.4:
        links[BLE] = (rng.randint(1, 90_000), rng.randint(1, 40_000), rng.randint(0, 1_000))
    return Host(
        MAINS if mains else rng.randint(1, 1_440_000),
        rng.randint(1_000, 2_000_000),
        rng.choice((1_000, 70_000, 3_000_000)),
        links,
        rng.choice((0, 1_000_000, 70_000_000)),
        heap_bytes=rng.choice((6_000, 12_000, 30_000)) if not mains else placement.FOREVER,
        log_bytes=rng.choice((2_000, 4_000, 100_000)),
        floats=rng.choice((32, 32, 32, 64)),
    )


def case(rng: random.Random, hosts: int, operators: int, mains: bool = True) -> tuple[Case, list[int]]:
    """Sources, then operators above them; every limit is tight now and then."""
    boards = [host(rng, mains and not h) for h in range(hosts)]
    vertices, edges, first = [], [], []
    for v in range(max(1, hosts - 1) + operators):
        here = rng.randrange(hosts)
        if v < max(1, hosts - 1):
            vertices.append(Vertex((here,), 0, rng.randint(0, 1_000)))
        else:
            others = [h for h in range(hosts) if h != here and rng.random() < 0.8]
            rng.shuffle(others)
            width = boards[here].floats if rng.random() < 0.2 else 0
            vertices.append(
                Vertex(
                    (here, *others),
                    rng.choice((0, rng.randint(0, 10_000_000))),
                    rng.randint(0, 3_000),
                    rng.randint(0, 1_500),
                    rng.randint(100, 9_000),
                    width,
                )
            )
            for u in rng.sample(range(v), 1 if rng.random() < 0.7 or v < 2 else 2):
                edges.append(
                    Edge(
                        u,
                        v,
                        rng.choice((0, rng.randint(0, 2_000_000))),
                        rng.choice((0, rng.randint(0, 8_000))),
                        rng.randint(0, 2_000),
                    )
                )
        first.append(here)
    edges.append(Edge(len(vertices) - 1, OUTSIDE, rng.randint(0, 100_000), rng.randint(0, 2_000)))
    return Case(boards, vertices, edges), first


def possible(found: Case) -> list[list[int]]:
    """Every placement that keeps the limits, judged without the code that is tested."""
    out = []
    for places in itertools.product(*[v.hosts for v in found.vertices]):
        if all(_keeps(found, places, h) for h in range(len(found.hosts))) and _linked(found, places):
            widths = [(v.width, found.hosts[h].floats) for v, h in zip(found.vertices, places)]
            if all(not width or width == floats for width, floats in widths):
                out.append(list(places))
    return out


def _keeps(found: Case, places: tuple[int, ...], h: int) -> bool:
    def need(v: int) -> int:
        queues = [e.queue_bytes for e in found.edges if e.dst == v and places[e.src] != h]
        return found.vertices[v].heap_bytes + sum(queues)

    running = [v for v in range(len(places)) if places[v] == h]
    spare = [need(v) for v in range(len(places)) if places[v] != h and h in found.vertices[v].hosts]
    heap = sum(map(need, running)) + max(spare, default=0)
    log = sum(found.vertices[v].log_bytes for v in running)
    return heap <= found.hosts[h].heap_bytes and log <= found.hosts[h].log_bytes


def _linked(found: Case, places: tuple[int, ...]) -> bool:
    for e in found.edges:
        a, b = places[e.src], 0 if e.dst == OUTSIDE else places[e.dst]
        links = [set(found.hosts[h].links) for h in (a, b, 0)]
        relayed = 0 not in (a, b) and links[0] & links[2] and links[2] & links[1]
        if a != b and not links[0] & links[1] and not relayed:
            return False
    return True


def drawn(found: Case, places: list[int]) -> list[float]:
    """Amperes of each host, from the formula of placement.py in floats and by another way."""
    hosts = found.hosts
    out = [h.base_na / 1e9 for h in hosts]
    frames = [0.0] * len(hosts)
    for v, h in zip(found.vertices, places):
        out[h] += v.units_mhz / 1e3 * hosts[h].unit_pc / 1e12
    ends = {(places[e.src], 0 if e.dst == OUTSIDE else places[e.dst]) for e in found.edges}
    for a, b in ends:
        if a == b:
            continue
        all_edges = [
            e for e in found.edges if (places[e.src], 0 if e.dst == OUTSIDE else places[e.dst]) == (a, b)
        ]
        busiest = max(e.frames_mhz for e in all_edges) / 1e3
        size = sum(e.bytes_mhz for e in all_edges) / 1e3 + busiest * placement.FRAME_BYTES
        best = _cheapest(hosts[a], hosts[b], size, busiest)
        if best is None:
            # The gateway takes it over a link of its own with each, and is not counted.
            up, down = (
                _cheapest(*pair, size, busiest) for pair in ((hosts[a], hosts[0]), (hosts[0], hosts[b]))
            )
            assert up and down
            best = (up[0], down[1], up[2], down[3])
        out[a] += best[0]
        out[b] += best[1]
        frames[a] += best[2]
        frames[b] += best[3]
    return [o + min(f, h.radio_na / 1e9) for o, f, h in zip(out, frames, hosts)]


def _cheapest(a: Host, b: Host, size: float, busiest: float) -> tuple[float, float, float, float] | None:
    """What sender and receiver pay for bytes, then for frames, over the link that costs them least."""
    costs = []
    for name in sorted(set(a.links) & set(b.links)):
        send, receive = size * a.links[name][0] / 1e12, size * b.links[name][1] / 1e12
        costs.append((send, receive, busiest * a.links[name][2] / 1e9, busiest * b.links[name][2] / 1e9))
    return min(
        costs,
        key=lambda c: (a.left_mc != MAINS) * (c[0] + c[2]) + (b.left_mc != MAINS) * (c[1] + c[3]),
        default=None,
    )


# ---- golden vectors


def as_rows(found: Case) -> dict[str, Any]:
    return {
        "hosts": [
            [h.left_mc, h.base_na, h.unit_pc, h.links, h.radio_na, h.heap_bytes, h.log_bytes, h.floats]
            for h in found.hosts
        ],
        "vertices": [
            [list(v.hosts), v.units_mhz, v.heap_bytes, v.log_bytes, v.moved_bytes, v.width]
            for v in found.vertices
        ],
        "edges": [[e.src, e.dst, e.bytes_mhz, e.frames_mhz, e.queue_bytes] for e in found.edges],
    }


def golden() -> list[dict[str, Any]]:
    """Cases that are looked at whole, and cases that are searched."""
    out = []
    for seed in range(16):
        rng = random.Random(seed)
        found, first = case(rng, 3 + seed % 3, 3 + seed % 4, mains=seed % 4 != 3)
        trials = 300 if seed % 2 else 25
        best = placement.place(found, first, trials)
        told = {**as_rows(found), "first": first, "trials": trials, "best": best}
        told["lives"] = found.lives(first)
        told["broken"] = [list(each) for each in found.breaks(first)]
        told["flee_mc"] = [found.flee_mc(first, h, 5_000) for h in range(len(found.hosts))]
        last = len(first) - 1
        told["moved"] = [list(found.moved(first, last, h)) for h in range(len(found.hosts))]
        out.append(told)
    return out


def text() -> str:
    return "".join(json.dumps(told) + "\n" for told in golden())


if __name__ == "__main__":
    GOLDEN.write_text(text())
