# Runs on MicroPython: the program of a board that hands an operator over when the file `move` says so, with
# the name of the operator and of the host. It is for moves while the gateway is out of reach. It waits until
# the board may begin, and sends no checkpoint to other hosts. It says `moves` on its console a moment before,
# so that what happens to the air can begin there.

import os
import sys
import time

from board_node import begin

COMMAND = 4  # headwater.protocol.moves
MOMENT_MS = 100


def wanted():
    try:
        with open("move") as f:
            operator, host = f.read().split()
    except (OSError, ValueError):
        return None
    return operator, host


def look(node):
    asked = wanted()
    host = node.host
    if not asked or not host or host.handing or host.pushes:
        return
    for v in host.plan.vertices:
        if v.name == asked[0] and v.index in host.instances:
            os.unlink("move")
            sys.stdout.write("moves %s\n" % v.name)
            time.sleep_ms(MOMENT_MS)
            refused = host.move(v.index, host.plan.hosts.index(asked[1]), COMMAND, node.mono())
            if refused:
                sys.stdout.write("refused %s %d\n" % (v.name, refused))
            return


def run():
    from headwater.board import program

    made = begin()
    made.board.watch = lambda: look(made)
    program.live(made)
