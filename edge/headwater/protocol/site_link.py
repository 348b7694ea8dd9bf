# What a board and the gateway call the stages of a deployment, in PLANNED, SWITCH and STATUS. docs/spec.md,
# "Site link", has the same numbers. Nothing but constants: a linked board needs no byte for this.

# States of a deployment on a board, in PLANNED. In STATUS, of the one that is not the present one: RUNS if
# there is none, REFUSED if the present one crashed repeatedly and is skipped.
WANTED = 0  # the board needs a piece of it
STORED = 1  # it is whole and waits; another one runs
RUNS = 2
DRAINING = 3  # the board drains for it
DRAINED = 4  # nothing of the present one is unsafe at the board
REFUSED = 5
LEFT_OUT = REFUSED

# Steps of SWITCH. From ROUND on they ask a drained board for its state.
FORGET = 0
DRAIN = 1
RUN = 2
ROUND = 3

AGAIN = 1 << 30  # + size, in PLAN: this board has run that deployment before, and has lost its flash since
BYTES_MAX = 20480  # of a deployment
PIECE_BYTES = 400  # ... of it in one frame
