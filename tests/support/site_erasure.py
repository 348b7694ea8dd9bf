"""Asking for erasures on a lake in a folder, and looking for what is left: what their tests share."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq
from headwater_cloud.audit import as_json, audit
from site_lake import START_US, Site

WINDOW = "ts >= '2026-05-28 20:26:40.040' and ts < '2026-05-28 20:26:40.061'"  # ξ 40 to 60


def ask(site: Site, where: str = WINDOW, name: str = "0123456789abcdef", later: bool = False) -> str:
    """As `hw lake erase` does; the next round of a sink carries it out."""
    from headwater_cloud import erasure
    from headwater_cloud.files import Files
    from headwater_cloud.location import Location

    asked = erasure.Asked("cardio/ecg", where, "a tester", "asked for", later)
    erasure.request(Files(site.spark), Location.of(site.lake), asked, name)
    return name


def answered(site: Site, name: str = "0123456789abcdef") -> dict[str, Any]:
    assert not (site.lake / "requests" / (name + ".erase")).exists()
    said: dict[str, Any] = json.loads((site.lake / "requests" / (name + ".done")).read_text())
    return said


def rows_on_disk(site: Site, stream: str = "cardio/ecg") -> set[int]:
    """The ξ of all rows of a stream in any Parquet file of the site, of whatever version of its tables."""
    found: set[int] = set()
    for path in [*site.lake.rglob("*.parquet"), *site.landing.glob("*.parquet")]:
        if "_delta_log" in path.parts:
            continue
        table = pq.read_table(path)
        if "xi" in table.column_names:
            found |= {r["xi"] for r in table.select(["stream", "xi"]).to_pylist() if r["stream"] == stream}
        if "raw" in table.column_names:
            for row in table.to_pylist():
                if row["raw"] is not None and row["reason"] == "divergent":
                    found.add(json.loads(row["raw"])["xi"])
                elif row["raw"] is not None:
                    found |= set(pq.read_table(io.BytesIO(row["raw"])).column("xi").to_pylist())
    return found


def logged(site: Site) -> str:
    """All that the logs of all tables say, checkpoints included."""
    texts = []
    for path in sorted(site.lake.rglob("_delta_log/*")):
        if path.suffix == ".parquet":
            texts.append(str(pq.read_table(path).to_pylist()))
        elif path.is_file() and not path.name.startswith("."):
            texts.append(path.read_text())
    return "\n".join(texts)


def judged(site: Site) -> dict[str, Any]:
    """The audit, which finds nothing wrong but what was refused before."""
    report = as_json(audit(str(site.lake)))
    for stream in report["streams"]:
        wrong = {
            name: stream[name] for name in ("lost", "duplicates", "changed", "unproven", "erased_returned")
        }
        assert not any(wrong.values()), (wrong, site.said)
        assert stream["conservation"]["holds"], (stream["conservation"], site.said)
    return report


def at(xi: int) -> str:
    """When the element of this ξ was measured, as a filter has it."""
    return "'%s'" % datetime.fromtimestamp((START_US + 1000 * xi) / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def between(first: int, last: int) -> str:
    return "ts between %s and %s" % (at(first), at(last))
