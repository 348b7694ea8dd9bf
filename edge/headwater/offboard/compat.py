# Replacements for what one interpreter has and the other lacks. No board has this module: the image builder
# removes its imports.

# A name bound to const(...) is its value; a board's compiler replaces it, and knows `const` by name alone.
# Elsewhere it is this function.
def const(value: int) -> int:
    return value


# MicroPython has no `typing`. What only a type checker needs is imported under `if TYPE_CHECKING:`: a checker
# takes any variable of this name for true.
TYPE_CHECKING = False
