# Alphabets: the declared field names and types of a port, like "t:u32 mV:i16".
#
# An alphabet decides how a port is packed, which columns its table has, and which ports may be
# connected: exactly those with the same text.

from array import array

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ..offboard.interfaces import Columns

# type -> (array and struct code, width in bytes, smallest, largest); floats have no limits.
TYPES: "dict[str, tuple[str, int, Any, Any]]" = {
    "i8": ("b", 1, -(1 << 7), (1 << 7) - 1),
    "u8": ("B", 1, 0, (1 << 8) - 1),
    "i16": ("h", 2, -(1 << 15), (1 << 15) - 1),
    "u16": ("H", 2, 0, (1 << 16) - 1),
    "i32": ("i", 4, -(1 << 31), (1 << 31) - 1),
    "u32": ("I", 4, 0, (1 << 32) - 1),
    "i64": ("q", 8, -(1 << 63), (1 << 63) - 1),
    "u64": ("Q", 8, 0, (1 << 64) - 1),
    "f32": ("f", 4, None, None),
    "f64": ("d", 8, None, None),
}
FIELDS_MAX = 32
NAME_MAX = 32  # letters
_NAME_FIRST = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"


class AlphabetError(ValueError):
    pass


# True for what may name a field, a port, a vertex or a parameter.
def is_name(s: str) -> bool:
    if not s or len(s) > NAME_MAX or s[0] not in _NAME_FIRST:
        return False
    for c in s:
        if c not in _NAME_FIRST and not "0" <= c <= "9":
            return False
    return True


class Alphabet:
    def __init__(self, text: str) -> None:
        names = []
        types = []
        for part in text.split():
            name, colon, kind = part.partition(":")
            if not colon or not is_name(name):
                raise AlphabetError("'%s' in alphabet '%s': write name:type, like mV:i16" % (part, text))
            if kind not in TYPES:
                raise AlphabetError(
                    "unknown type '%s' of field '%s': use one of %s" % (kind, name, " ".join(sorted(TYPES)))
                )
            if name in names:
                raise AlphabetError("field '%s' occurs twice in alphabet '%s'" % (name, text))
            names.append(name)
            types.append(kind)
        if not names:
            raise AlphabetError("an alphabet needs at least one field, like mV:i16")
        if len(names) > FIELDS_MAX:
            raise AlphabetError("%d fields in one alphabet; at most %d" % (len(names), FIELDS_MAX))
        self.names = tuple(names)
        self.types = tuple(types)
        self.codes = ""
        self.width = 0  # bytes of one element, unpacked
        for kind in types:
            self.codes += TYPES[kind][0]
            self.width += TYPES[kind][1]
        self.text = " ".join(map(":".join, zip(names, types)))

    # Preallocated columns for `size` elements, one array per field.
    def arrays(self, size: int) -> "Columns":
        columns = []
        for kind in self.types:
            columns.append(array(TYPES[kind][0], bytes(TYPES[kind][1] * size)))
        return tuple(columns)

    # True if some field is a float: such streams are not exact across float widths.
    def floats(self) -> bool:
        return "f" in self.codes or "d" in self.codes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alphabet) and self.text == other.text

    def __repr__(self) -> str:
        return "Alphabet('%s')" % self.text
