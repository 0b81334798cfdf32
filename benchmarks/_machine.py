"""Rates of multiplications and copies of this processor, measured in the run that compares its rows with them."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from tensormetrics.retrieval.search.int16.search import MIN_REFERENCES
from tensormetrics.retrieval.search.operators import supports_int16

SIZE = 2048  # of the matrices that are multiplied
COPIED = 2**25  # numbers of float32: more than a cache holds


class Machine(NamedTuple):
    """Rates of the processor with the current number of torch's threads."""

    float32: float  # multiply-adds a second
    int8: float
    copied: float  # bytes a second, those read and those written

    def fraction(self, seconds: float, *, float32: float = 0, int8: float = 0, copied: float = 0) -> float:
        """Return the fraction of a time that its products and bytes need at least."""
        return (float32 / self.float32 + int8 / self.int8 + copied / self.copied) / seconds

    def fraction_of_search(self, seconds: float, pairs: float, dim: int, references: int, k: int) -> float:
        """Return the fraction for products of `pairs` rows, in int16 where `TorchKNN` uses it, else in float32."""
        uses_int16 = references >= max(MIN_REFERENCES, 8 * k) and bool(supports_int16(torch.empty(0)))
        # An instruction computes 64 products of int8, or 32 of int16.
        return (
            self.fraction(seconds, int8=2 * pairs * dim) if uses_int16 else self.fraction(seconds, float32=pairs * dim)
        )

    def description(self) -> str:
        rates = f"{self.float32 / 1e9:.0f} (float32) and {self.int8 / 1e9:.0f} (int8) billion multiply-adds"
        return f"This machine: {rates} and {self.copied / 1e9:.1f} GB copied a second, with these threads."


def measured(turns: int = 5, size: int = SIZE, copied: int = COPIED) -> Machine:
    """Measure products of square matrices and a copy by torch; medians of interleaved turns."""
    x, y, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    small = torch.randint(-127, 128, (2, size, size), dtype=torch.int8)
    source, target = torch.zeros(copied), torch.empty(copied)
    assert torch.equal(torch._int_mm(*small)[:2].double(), small[0, :2].double() @ small[1].double())
    amounts: dict[str, tuple[float, Callable[[], object]]] = {
        "float32": (size**3, lambda: torch.mm(x, y, out=out)),
        "int8": (size**3, lambda: torch._int_mm(*small)),
        "copied": (2 * source.nbytes, lambda: target.copy_(source)),
    }
    times: dict[str, list[float]] = {name: [] for name in amounts}
    for _ in range(turns):
        for name, (_, run) in amounts.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return Machine(**{name: amount / statistics.median(times[name]) for name, (amount, _) in amounts.items()})
