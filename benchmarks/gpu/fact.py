"""Facts of a GPU: a check, which compares with the CPU and may return a note, and a call that is timed."""

from collections.abc import Callable

from benchmarks.gpu.start import STAND_IN
from tensormetrics._cli.machine import gpu_checks
from tensormetrics._cli.machine.gpu_checks import Different as Different
from tensormetrics._cli.machine.gpu_checks import Parts as Parts
from tensormetrics._cli.machine.gpu_checks import check_same as check_same

FACTS: dict[str, Callable[[], Parts]] = {}


def fact(name: str) -> Callable:
    def named(function: Callable[[], Parts]) -> Callable[[], Parts]:
        FACTS[name] = function
        return function

    return named


def milliseconds(call: Callable[[], object], patience: float = 4.0) -> float:
    """Return the median time of up to ten runs after two warm-ups; one run without a GPU."""
    return gpu_checks.milliseconds(call, 0.0 if STAND_IN else patience)
