# What stands in for one interpreter under the other. No board has this module: the image builder takes these
# imports out.

# A name bound to const(...) is its value, on a board by its compiler: that knows `const` by its name alone.
# Elsewhere it is this function.
def const(value: int) -> int:
    return value


# MicroPython has no `typing`. What only a type checker needs is imported under `if TYPE_CHECKING:`: a checker
# takes any variable of this name for true.
TYPE_CHECKING = False
