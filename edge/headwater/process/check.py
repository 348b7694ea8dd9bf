"""Validation: reports every mistake of a process at once, each with its place and a suggested fix.
A board never imports this module.

`check(process)` applies the rules of rules.py and feasibility.py, in the order of `_Check.run`. Each records
what it finds and leaves the rest to the others, so that one mistake is reported once and hides none of the
others.
Errors refuse the process; warnings tell what the author should know. If there is no error, the
report holds the plan.
"""

from ..data.alphabet import Alphabet
from ..plan import model as plans
from ..storage import reserve
from . import builder
from .feasibility import Feasibility
from .problems import ERROR, WARNING, Problem
from .sizing import SECTOR_BYTES, Sizing, kb


class Report:
    """What the check found. `plan` (bytes), `decoded` and `hash` are None if there is an error; `sizing` has
    the estimates that it used."""

    def __init__(
        self,
        name: str,
        problems: list[Problem],
        plan: bytes | None,
        decoded: plans.Plan | None,
        sizing: Sizing,
    ) -> None:
        self.name = name
        self.problems = problems
        self.plan = plan
        self.decoded = decoded
        self.sizing = sizing
        self.hash = decoded.process_hash.hex() if decoded else None

    def errors(self) -> list[Problem]:
        return [p for p in self.problems if p.severity == ERROR]

    def warnings(self) -> list[Problem]:
        return [p for p in self.problems if p.severity == WARNING]


def check(process: builder.Process) -> Report:
    return _Check(process).run()


def outputs(declared: builder.Declared) -> tuple[Alphabet, ...]:
    """The alphabets of a vertex's output ports, while the process is still being written."""
    work = _Check(declared.process)
    work.names()
    work.settings()
    work.connections()
    work.order_vertices()
    work.types()
    for v in work.vertices:
        if v.declared is declared and v.outs is not None:
            return v.outs
    raise builder.ProcessError(
        "the outputs of %s are not known yet: name them with .out(0), .out(1), ..." % declared.kind
    )


class Needs:
    """The least that validation asks of a process: `cap` of each wire, `delay_ms` of each feedback
    wire, `absent_ms` of each that may be absent, `flash_kb` of each host by name."""

    def __init__(self, process: builder.Process) -> None:
        work = _Check(process)
        work.names()
        work.settings()
        work.connections()
        work.order_vertices()
        work.types()
        work.placement()
        work.rates()
        self.cap: dict[builder.Wire, int] = {}
        self.delay_ms: dict[builder.Wire, int] = {}
        self.absent_ms: dict[builder.Wire, int] = {}
        for wire in process.wires:
            self.cap[wire] = work.need(wire)
            if wire.delay_ms is not None:
                self.delay_ms[wire] = 2 * work.loop_ms(wire)
                self.cap[wire] = work.feedback_need(wire) or self.cap[wire]
            if wire.absent_ms is not None:
                self.absent_ms[wire] = work.absent_least(wire)
        self.flash_kb: dict[str, int] = {}
        written = work.written()
        for h, host in enumerate(work.hosts):
            if h and written:
                deployment = reserve.deployment_bytes(len(builder.dumps(written)), len(written.hosts))
                self.flash_kb[host.name] = kb(reserve.sectors(written, h, deployment) * SECTOR_BYTES)


class _Check(Feasibility):
    def run(self) -> Report:
        self.names()
        self.settings()
        self.connections()
        self.order_vertices()
        self.types()
        self.unused_outputs()
        self.edges()
        self.placement()
        self.rates()
        self.buffers()
        self.feedback()
        self.lake_delays()
        self.absent()
        self.giving_up()
        self.alarms()
        self.floats()
        self.resources()
        self.advice()
        if not self.wrong():
            return self.number()
        return Report(self.process.name, self.sorted(), None, None, self)

    # -- the plan ------------------------------------------------------------------------------------

    def number(self) -> Report:
        p = self.process
        written = self.written()
        assert written is not None
        data = builder.dumps(written)
        try:
            decoded = plans.loads(data)
        except plans.PlanError as e:
            self.error(p, str(e), "Make it smaller")
            return Report(p.name, self.sorted(), None, None, self)
        return Report(p.name, self.sorted(), data, decoded, self)
