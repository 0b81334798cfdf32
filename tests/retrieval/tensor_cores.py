"""Model of how tensor cores accumulate float16 products; it differs from any float32 sum on a CPU.

Products are exact. At each step the products of `terms` columns and the running sum are truncated toward 0 to `bits`
bits below the leading bit of the largest; their sum is exact and truncated to float32. Bits and terms were measured by:
Fasi et al., Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 2021, DOI 10.7717/peerj-cs.330 (Volta,
Turing, Ampere); MMA-Sim, arXiv 2511.10909 (Hopper).
"""

import numpy as np

CARDS = {"Hopper": (25, 16), "Ampere": (24, 8)}  # bits, terms
_MIN_EXPONENT = -126  # smallest exponent of float32, also used for 0


def exponent(x: np.ndarray, min_exponent: int) -> np.ndarray:
    return np.where(x == 0, _MIN_EXPONENT, np.maximum(np.frexp(x)[1] - 1, min_exponent))


def products(a: np.ndarray, b: np.ndarray, bits: int, terms: int) -> np.ndarray:
    # a: (Q, D) float16  b: (R, D) float16  ->  (Q, R) float64, values of float32
    a, b = a.astype(np.float64), b.astype(np.float64)
    a_exponent, b_exponent, total = exponent(a, -14), exponent(b, -14), np.zeros((len(a), len(b)))
    for start in range(0, a.shape[1], terms):
        columns = slice(start, start + terms)
        column_products, max_exponent = (
            a[:, None, columns] * b[:, columns],
            (a_exponent[:, None, columns] + b_exponent[:, columns]).max(2),
        )
        unit = 2.0 ** (np.maximum(max_exponent, exponent(total, _MIN_EXPONENT)) - bits)
        total = (np.trunc(column_products / unit[..., None]).sum(2) + np.trunc(total / unit)) * unit
        unit = 2.0 ** (exponent(total, _MIN_EXPONENT) - 23.0)
        total = np.trunc(total / unit) * unit
    return total
