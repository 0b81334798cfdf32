"""What tensor cores add up: a model of their sums of float16 products, which no float32 sum on a CPU shows.

Products are exact. At each step those of `terms` columns and the sum so far are cut, towards 0, to `bits` bits below
the leading one of the largest; their sum is exact and cut to float32. Bits and terms were found by probes of the cards:
Fasi et al., Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 2021, DOI 10.7717/peerj-cs.330 (Volta,
Turing, Ampere); MMA-Sim, arXiv 2511.10909 (Hopper).
"""

import numpy as np

CARDS = {"Hopper": (25, 16), "Ampere": (24, 8)}  # bits, terms
_LEAST = -126  # the exponent of 0, and the least of float32


def exponent(x: np.ndarray, least: int) -> np.ndarray:
    return np.where(x == 0, _LEAST, np.maximum(np.frexp(x)[1] - 1, least))


def products(a: np.ndarray, b: np.ndarray, bits: int, terms: int) -> np.ndarray:
    # a: (Q, D) float16  b: (R, D) float16  ->  (Q, R) float64, values of float32
    a, b = a.astype(np.float64), b.astype(np.float64)
    of_a, of_b, total = exponent(a, -14), exponent(b, -14), np.zeros((len(a), len(b)))
    for start in range(0, a.shape[1], terms):
        step = slice(start, start + terms)
        each, top = a[:, None, step] * b[:, step], (of_a[:, None, step] + of_b[:, step]).max(2)
        unit = 2.0 ** (np.maximum(top, exponent(total, _LEAST)) - bits)
        total = (np.trunc(each / unit[..., None]).sum(2) + np.trunc(total / unit)) * unit
        unit = 2.0 ** (exponent(total, _LEAST) - 23.0)
        total = np.trunc(total / unit) * unit
    return total
