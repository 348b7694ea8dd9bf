# The keys of everything that a host stores: streams, facts and blobs of its log, or of the gateway's
# database, which has the same keys.
#
# Promise: no other module computes a key or contains one as a number. docs/spec.md has the same table.
#
#   streams  vertex * 8 + output port
#   facts    small values: some of the host, the others of a vertex or an edge: base + its number
#   blobs    below B_DEPLOYMENT: vertex * 4 + slot, the checkpoints of operators; the others by name
#
# Invariant: the ranges do not overlap, with as many vertices and edges as a plan may have (plan/reader.py).

# ---- facts

F_BOOT = 1  # number of this boot
F_FLOOR = 2  # no ts at or below it follows, in any boot
F_SWITCH = (
    4  # id of the deployment to drain for; with one byte more the switch is decided (board/deployment.py)
)
# This host returned, with an empty store, to a deployment that it was part of. A byte for each vertex:
F_AGAIN = 5
LEARN = 1  # ... this gateway has to learn which parameters are in force
LOST = 2  # ... no checkpoint was stored here since
UNTOLD = 4  # ... of the first one: this board has not heard from the gateway which hosts are lost
F_SILENT = 7  # what a host that went to sleep had counted of the silence of others (runtime/words.py)
F_DRAINED = 6  # id of the deployment for which this board has told the gateway that it is drained
F_ALARMS = 16  # a byte for each alarm of the plan: why it sounds here (runtime/signals.py)
F_INC = 0x40  # + vertex: incarnation of a source that began a new one within its log
F_OP = 0x100  # + vertex: [epoch number, its host, state] of an operator that was hosted here. The state:
OVER = 0  # ... it does not run here any more
RUNS = 1
DECIDING = 2  # ... it runs, and its last decision is not stored at the level yet
ALONE = 4  # ... it began without any producer, and asks before it speaks (runtime/watching.py)
UNSETTLED = 3  # ... it runs, and this epoch has no checkpoint at the level yet, or not met a producer
F_WHERE = 0x200  # + vertex: [epoch number, its host, host], and why and when it moved, where known
F_NEXT = 0x300  # + vertex, at the gateway: number of the last change that was made
F_TAKEN = 0x380  # + vertex, at the gateway: ... of the last that the operator has taken
F_LOST = 0x480  # + host: [log number, state] of one that was declared lost (runtime/losses.py)
DECLARED = 1  # ... its frames are refused;
LEFT = 2  # ... and it counts as a keeper of nothing
LOST_MAX = 8  # hosts that may be declared lost in one deployment
F_MET = 0x500  # + edge to the lake, at the gateway: its source was met, in this version of the process
F_READER = 0x1000  # + edge: what its port knows of the consumer
F_GAPS = 0x2000  # + edge to the lake: declared gaps that are not safe there yet

# ---- blobs

# Slots of an operator. 1 and 2 are pending checkpoints, in any order.
PERMANENT = 0
PENDING = 1
HELD = 3  # kept for the host that runs the operator
B_DEPLOYMENT = 0x800  # what this board runs
B_COMING = 0x801  # the deployment that waits
B_SWITCH = 0x802  # what a switch that is decided has to do to the sources
B_CRASH = 0x803  # [boot number, text, crashes in a row] of a board
B_ENERGY = 0x804  # what a board knows of its battery and of hand-overs (runtime/battery.py)
B_PARTS = 0x810  # + number: a part of a checkpoint that arrives (storage/arrival.py)
PARTS_MAX = 16
B_DECIDED = 0x4000  # + vertex: what an operator without checkpoints has decided
B_VALUES = 0x6000  # + vertex, at the gateway: what the operator has reported about its parameters
B_CHANGES = 0x8000  # see change_key


def stream_key(vertex: int, port: int = 0) -> int:
    return vertex * 8 + port


# The blob of a checkpoint.
def checkpoint_key(vertex: int, slot: int) -> int:
    return vertex * 4 + slot


# The blob of a change at the gateway. The last 64 of an operator are kept.
def change_key(vertex: int, number: int) -> int:
    return B_CHANGES + vertex * 64 + number % 64


# ---- the way back, for gateways and tools


# (vertex, port) of a stream.
def stream_of(key: int) -> tuple[int, int]:
    return key // 8, key % 8


# (vertex, slot) of the blob of a checkpoint, or None if it is another one.
def checkpoint_of(key: int) -> tuple[int, int] | None:
    return (key // 4, key % 4) if key < B_DEPLOYMENT else None
