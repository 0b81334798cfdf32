"""What a row of the table says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from tensormetrics._metric import Metric


@dataclass(frozen=True)
class LeftOut:
    """What is not finite is left out, or means something, as the documentation says and `why` repeats.

    expected: the arguments with the value in them -> the numbers that come out all the same; None: those of a metric
    without these items, and of a function any, but for the other items of its batch.
    """

    why: str
    expected: Callable[..., tuple[Tensor, ...]] | None = None


# What NaN or an infinity in a floating argument does: "raises" a ValueError; "nan": what depends on it is not finite
# and all else is as it was; LeftOut; "no floats": there is no floating argument. A row may say it by a function of the
# place of the argument and the value.
Policy = str | LeftOut
NotFinite = Policy | Callable[[int, float], Policy] | None


@dataclass(frozen=True)
class MetricCase:
    make: Callable[[], Metric]
    inputs: Callable[[Generator, int], tuple[Tensor, ...]]  # (generator, items) -> the arguments of update
    oracle: Callable[..., Any]  # the same arguments as numpy arrays -> the numbers that compute gives, flattened
    rtol: float = 1e-12
    forward_is_compute: bool = True  # False: forward answers with something else than compute on the batch
    bad: tuple[tuple[Any, ...], ...] = ()  # arguments of update that raise a ValueError
    waits: bool = False  # update waits for the device: it reads a value, or works on the host as well
    not_finite: NotFinite = None
    names_what_it_met: bool = False  # compute has keys that depend on the data


@dataclass(frozen=True)
class FunctionCase:
    call: Callable[..., tuple[Tensor, ...]]
    inputs: Callable[[Generator, tuple[int, ...]], tuple[Tensor, ...]]  # (generator, leading shape) -> arguments
    pad: Callable[..., tuple[Tensor, ...]] | None = None  # (garbage, *arguments) -> the same with padding
    unpad: Callable[..., tuple[Tensor, ...]] = lambda results, *arguments: results  # results of padded -> of unpadded
    compiles: bool = False
    rtol: float = 0.0  # 0: equal bit for bit; products of matrices are not, from one shape to another
    not_finite: NotFinite = None
