"""The lake: reading it from notebooks (`Lake`), auditing it, and the sink that fills it."""

from .lake import Lake

__all__ = ["Lake"]
