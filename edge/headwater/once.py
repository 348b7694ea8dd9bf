# Modules used only at start-up, or rarely. A board unloads them after use to free RAM, with their
# functions; a later use imports them again. So they are imported inside functions only, and hold
# no state.

import gc
import sys


def let_go(*names: str) -> None:
    if sys.implementation.name == "micropython":
        package = sys.modules["headwater"]
        for name in names:
            if sys.modules.pop("headwater." + name, None):
                delattr(package, name)
        gc.collect()  # what stays can then use their space
