"""The lake: reading it with Spark (`Lake`) or without a JVM (`ArrowLake`), auditing it, and its sink."""

from typing import TYPE_CHECKING, Any

from .lake import Lake

if TYPE_CHECKING:
    from .arrow import ArrowLake

__all__ = ["ArrowLake", "Lake"]


def __getattr__(name: str) -> Any:
    """`ArrowLake` needs pyarrow and delta-rs, which the arguments of a command (`--help`) do not need."""
    if name == "ArrowLake":
        from .arrow import ArrowLake

        return ArrowLake
    raise AttributeError("module %r has no attribute %r" % (__name__, name))
