# AES in counter mode on a board. The `cryptolib` of stock firmware has no counter mode (its builds leave
# MICROPY_PY_CRYPTOLIB_CTR off), so counter blocks are encrypted in ECB mode, eight at a time, and their bytes
# are combined with those of the frame as large integers, which costs a board far less than a loop over bytes.
# ImportError where a board has no cryptolib.

from cryptolib import aes  # type: ignore[import-not-found]

from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from ..offboard.interfaces import Writable

_ECB = const(1)
_AT_ONCE = const(128)  # bytes; a multiple of 16

_blocks = bytearray(_AT_ONCE)
_stream = memoryview(bytearray(_AT_ONCE))


# Encrypt or decrypt mem where it is: XOR with AES-256 of counter and number of the block, each a u64,
# big-endian.
def crypt(key: bytes, counter: int, mem: "Writable") -> None:
    cipher = aes(key, _ECB)
    blocks = _blocks
    size = len(mem)
    head = counter.to_bytes(8, "big")
    for at in range(0, _AT_ONCE, 16):
        blocks[at : at + 8] = head
    number = 0
    for at in range(0, size, _AT_ONCE):
        for last in range(15, _AT_ONCE, 16):
            blocks[last] = number & 255
            blocks[last - 1] = number >> 8  # a frame has at most 1,024 blocks
            number += 1
        cipher.encrypt(blocks, _stream)
        n = min(_AT_ONCE, size - at)
        word = int.from_bytes(mem[at : at + n], "little") ^ int.from_bytes(_stream[:n], "little")
        mem[at : at + n] = word.to_bytes(n, "little")
