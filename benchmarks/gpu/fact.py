"""A fact of a GPU: a check, which compares with the CPU and may return a note, and the call that is timed."""

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.gpu.start import STAND_IN

Parts = tuple[Callable[[], str | None], Callable[[], object]]
FACTS: dict[str, Callable[[], Parts]] = {}


def fact(name: str) -> Callable:
    def named(function: Callable[[], Parts]) -> Callable[[], Parts]:
        FACTS[name] = function
        return function

    return named


class Different(Exception):
    """The card does not answer as the CPU does."""


def same(found, wanted, rtol: float = 0.0, share: float = 1.0) -> None:
    """In all entries, or in a share of them, bit for bit or within `rtol`."""
    for a, b in zip(found, wanted, strict=True):
        a = a.cpu()
        equal = torch.isclose(a, b, rtol=rtol, atol=1e-37, equal_nan=True) if rtol else a == b
        if equal.double().mean().item() < share if equal.numel() else False:
            raise Different(f"{(~equal).sum().item()} of {equal.numel()} entries")


def milliseconds(call: Callable[[], object], patience: float = 4.0) -> float:
    """Median of up to ten runs after two."""

    def once() -> float:
        if not torch.cuda.is_available():
            start = time.perf_counter()
            call()
            return 1000 * (time.perf_counter() - start)
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        return start.elapsed_time(stop)

    spent, end = [], time.perf_counter() + patience
    while len(spent) < 12 and (not spent or time.perf_counter() < end):
        spent.append(once())
        if STAND_IN:
            break
    return statistics.median(spent[2:] or spent)
