# Files of golden vectors: a JSON object in which each part begins a line, and its end does.

import json

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


# One part of a file, read alone: all of them together do not fit into a board's heap.
def part(path: str, name: str) -> "Any":
    start = '"%s": ' % name
    with open(path) as f:
        line = f.readline()
        while not line.startswith(start):
            line = f.readline()
        lines = [line[len(start) :]]
        while line[0] not in "]}":
            line = f.readline()
            lines.append(line)
    return json.loads("".join(lines).rstrip(",\n"))
