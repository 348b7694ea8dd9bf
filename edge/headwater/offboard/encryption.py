# AES in counter mode on CPython, by `cryptography`; on a board `board/aes.py` does this. A program that has
# links which do not encrypt themselves calls `use` once.

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ..protocol import cipher
from .compat import TYPE_CHECKING

if TYPE_CHECKING:
    from .interfaces import Writable


# Encrypt or decrypt mem where it is: XOR with AES-256 of counter and number of the block, each a u64,
# big-endian.
def crypt(key: bytes, counter: int, mem: "Writable") -> None:
    first = counter.to_bytes(8, "big") + bytes(8)
    mem[:] = Cipher(algorithms.AES(key), modes.CTR(first)).encryptor().update(mem)


# Have frames encrypted by this.
def use() -> None:
    cipher.use(crypt)
