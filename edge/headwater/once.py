# Modules that a life needs at its start, or hardly ever. On a board they go again when they have done
# their work, and their functions with them; who needs them later imports them anew. So they are
# imported inside functions only, and hold no state.

import gc
import sys


def let_go(*names: str) -> None:
    if sys.implementation.name == "micropython":
        package = sys.modules["headwater"]
        for name in names:
            if sys.modules.pop("headwater." + name, None):
                delattr(package, name)
        gc.collect()  # what stays comes to lie where they were
