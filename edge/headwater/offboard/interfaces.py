"""Types that several modules of the runtime share, and what they ask of objects that others make.

No board has this module: the others import it under `if TYPE_CHECKING` (compat.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from ..data.alphabet import Alphabet

Readable: TypeAlias = bytes | bytearray | memoryview
Writable: TypeAlias = bytearray | memoryview

# The values of one field. Whether they are integers or floats is what an alphabet says at run time.
Column: TypeAlias = "array[Any]"
Columns: TypeAlias = "tuple[Column, ...]"
Row: TypeAlias = "tuple[Any, ...]"
# A port as the check knows it: the text of its alphabet, or the alphabet, or None for a disabled one.
Port: TypeAlias = "Alphabet | str | None"
Ports: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"  # alphabets of inputs and outputs, as texts
# Parameters of an operator by name. The type of each is what PARAMS of its class says at run time.
Params: TypeAlias = "dict[str, Any]"
# An expression: a number, a name, or [operation, operand ..].
Tree: TypeAlias = "int | str | list[Tree]"

Epoch: TypeAlias = "tuple[int, int]"  # number, host
Position: TypeAlias = "Sequence[int]"
Message: TypeAlias = "tuple[Any, ...]"  # kind, then the fields that frames.MESSAGES lists for that kind
Head: TypeAlias = "tuple[int, int, int, bytes, int]"  # of a frame: see frames.header
Span: TypeAlias = "tuple[int, int]"  # begin, end
# Of a stream: elements a second at most, most elements between two checkpoints, longest time between them in
# seconds. None: unknown.
Rates: TypeAlias = "tuple[float | None, int, float | None]"


class Merged(Protocol):
    """A batch of several inputs: element i is of port `port[i]`; `cols[p]` holds the columns of port p."""

    n: int
    ts: int
    dt: int
    unsync: int
    hole: int
    port: Sequence[int]
    at: array[int]
    cols: Sequence[Columns]

    def ts_of(self, i: int) -> int: ...


class Device(Protocol):
    """A block device: `esp32.Partition`, a file, or flash in software (testing/cut_flash.py)."""

    def readblocks(self, block: int, buf: Writable, offset: int, /) -> Any: ...

    def writeblocks(self, block: int, buf: Readable, offset: int, /) -> Any: ...

    def ioctl(self, request: int, block: int, /) -> int: ...


class Outbox(Protocol):
    """Where the edges to the lake end at a gateway: its database, or the simulator's."""

    # Nothing more is taken: the queues fill, and the producers are told that there is no room.
    @property
    def full(self) -> bool: ...

    # The block in `data`, which it copies, holds entries xi .. xi + n - 1.
    def put(self, edge: int, inc: int, xi: int, n: int, data: Readable) -> None: ...

    def gap(self, edge: int, inc: int, first: int, last: int, reason: int) -> None: ...

    # The incarnation taken last, or 0.
    def latest(self, edge: int) -> int: ...

    # xi up to which everything is in the outbox, in the lake.
    def durable(self, edge: int, inc: int) -> int: ...

    def lake(self, edge: int, inc: int) -> int: ...


class Carrier(Protocol):
    """Takes frames to other hosts: docs/architecture.md, Carriers."""

    @property
    def up(self) -> bool: ...

    # Nobody on the way can read what it carries.
    @property
    def private(self) -> bool: ...

    # pC for a byte, nC for a frame.
    @property
    def cost(self) -> tuple[int, int]: ...

    def reaches(self, to: str) -> bool: ...

    # Frames of the longest length that it takes now.
    def room(self, to: str) -> int: ...

    # All of the frame, copied, or nothing: False. sender: for a host with several names.
    def send(self, to: str, frame: Readable, sender: str, /) -> bool: ...

    def wanted(self, to: str, now: int, /) -> None: ...

    def tick(self, now: int, /) -> None: ...


class Radio(Protocol):
    """What a machine does for protocol/ble_carrier.py."""

    # One value, copied; False: the host has no buffer for it now.
    def put(self, handle: int, value: memoryview, /) -> bool: ...

    def close(self, handle: int, /) -> None: ...

    def connect(self, address: Any, /) -> None: ...

    # interval 0: do not advertise.
    def advertise(self, data: bytes, interval_ms: int, /) -> None: ...

    def listen(self, on: bool, /) -> None: ...
