# For modules that still import `const` from here: it is in compat.py.
from .compat import const as const
