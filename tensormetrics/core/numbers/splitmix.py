"""SplitMix64: random bits as a function of their address.

Steele, Lea & Flood, Fast Splittable Pseudorandom Number Generators, 2014, doi:10.1145/2714064.2660195.
"""

from torch import Tensor

# The generator's three odd constants as signed 64-bit integers; products wrap around.
STEP, FIRST, SECOND = (c - 2**64 for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def random_bits_at(key: Tensor | int, index: Tensor) -> Tensor:
    # index: int64  ->  int64, 64 random bits for every index
    return mix(key + index * STEP)


def mix(z: Tensor) -> Tensor:
    # int64  ->  int64, every bit of which depends on all bits
    z = (z ^ _shift(z, 30)) * FIRST
    z = (z ^ _shift(z, 27)) * SECOND
    return z ^ _shift(z, 31)


def _shift(z: Tensor, bits: int) -> Tensor:
    return (z >> bits) & (2 ** (64 - bits) - 1)  # int64 shifts copy the sign, which the mask takes off
