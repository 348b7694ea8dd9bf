"""What validation reports: problems, each with its place and a suggested fix, and how it speaks of vertices
and edges."""

from . import builder
from .builder import Host
from .sizing import Sizing, Vertex, signal_name

At = (
    Vertex | builder.Wire | builder.Signal | Host | builder.Process
)  # what is wrong, or what a warning is about
ERROR, WARNING = "error", "warning"


class Problem:
    """One thing that is wrong: where (file, line, and in words), what, and what to do."""

    def __init__(self, severity: str, place: builder.Place, where: str, what: str, cure: str) -> None:
        self.severity = severity
        self.file, self.line = place
        self.where = where
        self.what = what
        self.cure = cure

    def __str__(self) -> str:
        warning = "warning: " if self.severity == WARNING else ""
        what = self.what if self.what.endswith("?") else self.what + "."
        return "%s:%d: %s%s: %s %s." % (self.file, self.line, warning, self.where, what, self.cure)


class Problems(Sizing):
    """An estimate of a process, and the problems found with it."""

    def __init__(self, process: builder.Process) -> None:
        Sizing.__init__(self, process)
        self.problems: list[Problem] = []

    def sorted(self) -> list[Problem]:
        return sorted(self.problems, key=lambda p: (p.file, p.line, p.severity != ERROR))

    def wrong(self) -> list[Problem]:
        return [p for p in self.problems if p.severity == ERROR]

    def error(self, at: At, what: str, cure: str, where: str | None = None) -> None:
        """`at`: the vertex, wire, host or process that is wrong; `where` instead of its own words."""
        self.problems.append(Problem(ERROR, at.where, where or self.words(at), what, cure))

    def warn(self, at: At, what: str, cure: str) -> None:
        self.problems.append(Problem(WARNING, at.where, self.words(at), what, cure))

    def words(self, at: At) -> str:
        if isinstance(at, Vertex):
            return at.label
        if isinstance(at, builder.Wire):
            return self.port(at)
        if isinstance(at, Host):
            return "host '%s'" % (at.name,)
        if isinstance(at, builder.Signal):
            return "alarm '%s'" % (signal_name(self.process.signals.index(at), at),)
        return "process"

    def port(self, wire: builder.Wire) -> str:
        """The words for an edge: where it ends, or for the lake what it is called there."""
        if wire.vertex is None:
            return "lake stream '%s'" % wire.lake
        return "%s, port %s" % (self.of[id(wire.vertex)].label, wire.port)
