"""What a process file imports: `from headwater.process import Process, Fir, Qrs`.

Everything here needs CPython; no board has it. `builder` writes down what the file declares, `check`
validates it and numbers it into a plan.
"""

from __future__ import annotations

from typing import Any

from . import builder
from .builder import Process as Process
from .builder import ProcessError as ProcessError
from .builder import Stream as Stream
from .builder import operator as operator

__all__ = builder._OWN + builder.library()


def __getattr__(name: str) -> Any:
    # The types of the operator library, by their names.
    return getattr(builder, name)
