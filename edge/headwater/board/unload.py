# Modules used only at start-up, or rarely: a board unloads them after use, with their functions, to free RAM.
# They are imported inside functions only, and hold no state; whatever needs one later imports it again. No
# module that stays loaded imports one at its top: it would stay as well, and be there twice when it is loaded
# again.

import gc
import sys


# `names`: of modules inside the package, like "runtime.startup".
def unload(*names: str) -> None:
    if sys.implementation.name == "micropython":
        found = False
        for name in names:
            path = "headwater." + name
            if sys.modules.pop(path, None):
                package, _, leaf = path.rpartition(".")
                delattr(sys.modules[package], leaf)
                found = True
        if found:
            gc.collect()  # what is loaded next is placed where they were
