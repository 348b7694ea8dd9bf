"""Information about the streams of a lake, as queries over its tables: gaps, quality, latency.

Each function takes the text after FROM for each table (a name, a path, a query in brackets) and returns the
text of a query, which Spark and DataFusion understand alike: so a DataFrame, a view of a catalog, and a
reader without a JVM share one definition. Every query names all its columns and leaves the order
of its rows open.
"""

from __future__ import annotations

from .dialect import SPARK, Dialect

GAP = "stream, incarnation, first, last, kind, reason"


def missing(gaps: str, erasures: str | None, dialect: Dialect) -> str:
    """The text after FROM for everything that was declared missing: the table `gaps`, and erased rows as if
    they had been declared. A lake of an earlier version has no table `erasures`."""
    if erasures is None:
        return gaps
    return """(
SELECT {gap}, process, from_ts, to_ts, landed FROM {gaps}
UNION ALL SELECT stream, run['incarnation'] AS incarnation, run['first'] AS first, run['last'] AS last,
'erased' AS kind, concat('by ', {by}, ': ', filter) AS reason, CAST(NULL AS {text}) AS process,
nullif(declared, declared) AS from_ts, nullif(declared, declared) AS to_ts, declared AS landed
FROM (SELECT stream, {by}, filter, declared, {runs} AS run FROM {erasures})
)""".format(
        gap=GAP,
        gaps=gaps,
        erasures=erasures,
        by=dialect.named("by"),
        runs=dialect.items("ranges"),
        text="string" if dialect is SPARK else "varchar",
    )


def gaps(gaps: str, elements: str) -> str:
    """Runs of ξ that were declared missing and that no row has filled since.

    A row inside a gap splits it in two; a row beside it tells its time, if that was not declared. `declared`
    is there because a segment that was written twice declares its gaps twice.
    """
    return """
WITH declared AS (
    SELECT {gap}, min(process) AS process, min(from_ts) AS from_ts, max(to_ts) AS to_ts, min(landed) AS landed
    FROM {gaps} GROUP BY {gap}
),
points AS (
    SELECT /*+ BROADCAST(g) */ g.*, e.xi, e.ts FROM {elements} e JOIN declared g
    ON e.stream = g.stream AND e.incarnation = g.incarnation AND e.xi BETWEEN g.first - 1 AND g.last + 1
    UNION ALL SELECT *, first - 1 AS xi, nullif(landed, landed) AS ts FROM declared
    UNION ALL SELECT *, last + 1 AS xi, nullif(landed, landed) AS ts FROM declared
),
along AS (
    SELECT {gap}, process, from_ts, to_ts, landed, xi, max(ts) AS ts FROM points
    GROUP BY {gap}, process, from_ts, to_ts, landed, xi
),
runs AS (
    SELECT *, lag(xi) OVER (PARTITION BY {gap} ORDER BY xi) AS xi_before,
    lag(ts) OVER (PARTITION BY {gap} ORDER BY xi) AS ts_before FROM along
)
SELECT stream, incarnation, xi_before + 1 AS first, xi - 1 AS last, xi - xi_before - 1 AS missing,
kind, reason,
CASE WHEN xi_before < first THEN coalesce(from_ts, ts_before) ELSE ts_before END AS from_ts,
CASE WHEN xi > last THEN coalesce(to_ts, ts) ELSE ts END AS to_ts, process, landed
FROM runs WHERE xi > xi_before + 1""".format(gap=GAP, gaps=gaps, elements=elements)


def quality(elements: str, declared: str, quarantine: str) -> str:
    """How much of each stream and incarnation is there, and what became of the rest.

    Declarations may overlap if a run was cut again: each ξ counts once (`own`).
    """
    return """
WITH present AS (
    SELECT stream, incarnation, count(*) AS n, max(xi) AS last_row, count(*) FILTER (WHERE unsync) AS unsync,
    min(ts) AS first_ts, max(ts) AS last_ts FROM {elements} GROUP BY stream, incarnation
),
reaching AS (
    SELECT *, coalesce(max(last) OVER (PARTITION BY stream, incarnation ORDER BY first, last
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS reach FROM ({open})
),
own AS (SELECT *, greatest(0, last - greatest(first - 1, reach)) AS own FROM reaching),
missing AS (
    SELECT stream, incarnation, sum(CASE WHEN kind = 'hole' THEN own ELSE 0 END) AS holes,
    sum(CASE WHEN kind = 'gap' THEN own ELSE 0 END) AS dropped,
    sum(CASE WHEN kind = 'erased' THEN own ELSE 0 END) AS erased, max(last) AS last_gap
    FROM own GROUP BY stream, incarnation
),
refused AS (
    SELECT stream, incarnation, sum(rows) AS refused FROM {quarantine} WHERE reason = 'divergent'
    GROUP BY stream, incarnation
),
named AS (
    SELECT coalesce(p.stream, m.stream) AS stream, coalesce(p.incarnation, m.incarnation) AS incarnation,
    n, last_row, unsync, first_ts, last_ts, holes, dropped, erased, last_gap
    FROM present p FULL JOIN missing m ON p.stream = m.stream AND p.incarnation = m.incarnation
),
counted AS (
    SELECT a.stream, a.incarnation, coalesce(n, 0) AS n,
    CASE WHEN last_row >= last_gap OR last_gap IS NULL THEN last_row ELSE last_gap END AS last,
    coalesce(holes, 0) AS holes, coalesce(dropped, 0) AS dropped, coalesce(erased, 0) AS erased,
    coalesce(refused, 0) AS refused, coalesce(unsync, 0) AS unsync, first_ts, last_ts
    FROM named a LEFT JOIN refused r ON a.stream = r.stream AND a.incarnation = r.incarnation
)
SELECT stream, incarnation, n AS rows, last, holes, dropped, erased,
last - holes - erased - n - dropped AS lost,
CASE WHEN last > holes + erased THEN CAST(n AS double) / CAST(last - holes - erased AS double) END
AS completeness,
refused, unsync, first_ts, last_ts FROM counted""".format(
        elements=elements, open=gaps(declared, elements), quarantine=quarantine
    )


def latency(elements: str, streams: str, dialect: Dialect) -> str:
    """From ts until rows landed and arrived, in ms; rows stamped before a clock was set are left out."""
    columns = []
    for name in ("landed_ms", "arrived_ms"):
        kind = name.removesuffix("_ms")
        for percent in (50, 90, 99):
            columns.append("%s AS %s_p%d_ms" % (dialect.percentile(name, percent), kind, percent))
        columns.append("max(%s) AS %s_max_ms" % (name, kind))
    since = "CAST(%s - %s AS double) / 1000"
    ts = dialect.micros("ts")
    return """
WITH told AS (
    SELECT stream, within_ms,
    row_number() OVER (PARTITION BY stream ORDER BY version DESC, since DESC) AS place
    FROM {streams} WHERE within_ms IS NOT NULL
),
asked AS (SELECT stream, within_ms FROM told WHERE place = 1),
delays AS (
    SELECT stream, incarnation, {landed} AS landed_ms, {arrived} AS arrived_ms
    FROM {elements} WHERE NOT unsync
),
ranked AS (SELECT {ranks} FROM delays)
SELECT d.stream, d.incarnation, count(*) AS rows, max(within_ms) AS within_ms,
count(*) FILTER (WHERE within_ms > 0 AND landed_ms > within_ms) AS late, {columns}
FROM ranked d LEFT JOIN asked a ON d.stream = a.stream GROUP BY d.stream, d.incarnation""".format(
        ranks=", ".join(["*", *dialect.ranks(["landed_ms", "arrived_ms"], "stream, incarnation")]),
        streams=streams,
        elements=elements,
        landed=since % (dialect.micros("landed"), ts),
        arrived=since % (dialect.micros("arrived"), ts),
        columns=", ".join(columns),
    )
