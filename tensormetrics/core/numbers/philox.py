"""Philox4x32-10, a counter-based generator: random bits are a function of an address, without hidden state.

Salmon, Moraes, Dror & Shaw 2011, doi:10.1145/2063384.2063405.
"""

import hashlib
from collections.abc import Sequence
from typing import overload

from torch import Tensor

RandomBits = tuple[int, int, int, int]  # of 32 bits
Lanes = tuple[Tensor, Tensor, Tensor, Tensor]  # each 32 random bits, in int64
Mixed = int | Tensor

MASK_32 = 2**32 - 1
# With 2^32 subtracted, products of a multiplier and 32 bits fit 63 bits; adding the 32 bits to the high half undoes it.
MULTIPLIERS = 0xD2511F53 - 2**32, 0xCD9E8D57 - 2**32
KEY_STEPS = 0x9E3779B9, 0xBB67AE85


@overload
def philox4x32(counter: RandomBits, key: tuple[int, int]) -> RandomBits: ...
@overload
def philox4x32(counter: tuple[Mixed, Mixed, Mixed, Mixed], key: Sequence[Tensor]) -> Lanes: ...
@overload
def philox4x32(counter: tuple[Tensor, Mixed, Mixed, Mixed], key: tuple[int, int]) -> Lanes: ...
def philox4x32(counter, key):
    """Return four times 32 random bits for each counter and key; lanes broadcast against each other."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (c2 + (p1 >> 32)) ^ c1 ^ k0, p1 & MASK_32, (c0 + (p0 >> 32)) ^ c3 ^ k1, p0 & MASK_32
        k0, k1 = (k0 + KEY_STEPS[0]) & MASK_32, (k1 + KEY_STEPS[1]) & MASK_32
    return c0, c1, c2, c3


def random_key(seed: int, name: str, method: str, stream: str) -> int:
    """Derive the 64 bits on which all draws of one stream depend."""
    parts = "tensormetrics.posterior/1", str(seed), name, method, stream
    if others := [part for part in parts if not isinstance(part, str)]:
        raise TypeError(f"name: got {others[0]!r:.60}, wanted a text; write {str(others[0])!r:.60}")
    if wrong := [part for part in parts if "\x1f" in part]:
        raise ValueError(f"name: got {wrong[0]!r} with the character U+001F, which separates the parts of a key")
    return int.from_bytes(hashlib.blake2b("\x1f".join(parts).encode(), digest_size=8).digest(), "little")


# A graph holds keys as constants. torch.compiler.assume_constant_result sets this flag too, but imports the compiler.
vars(random_key)["_dynamo_marked_constant"] = True


def philox_key(seed: int, name: str, method: str, stream: str) -> tuple[int, int]:
    """Return the low and the high 32 bits of a random key."""
    key = random_key(seed, name, method, stream)
    return key & MASK_32, key >> 32
