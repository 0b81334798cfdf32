"""Types of the rows in the table of metrics and tensor functions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from tensormetrics.core.metric.base import Metric


@dataclass(frozen=True)
class LeftOut:
    """Policy of ignoring a non-finite value or of giving it a meaning; `reason` repeats the documentation.

    expected: Function of the arguments with the value in them that returns the expected results. If None, a metric must
    return the results without these items, and only the other items in the batch of a function are checked.
    """

    reason: str
    expected: Callable[..., tuple[Tensor, ...]] | None = None


# The effect of NaN or an infinity in a floating-point argument: "raises" a ValueError; "nan": results that depend on it
# are not finite and all others are unchanged; LeftOut; None: there is no floating-point argument. A row may choose the
# policy by a function of the position of the argument and the value.
Policy = str | LeftOut
NotFinite = Policy | Callable[[int, float], Policy] | None


@dataclass(frozen=True)
class MetricCase:
    make: Callable[[], Metric]
    inputs: Callable[[Generator, int], tuple[Tensor, ...]]  # (generator, items) -> the arguments of update
    oracle: Callable[..., Any]  # the same arguments as NumPy arrays -> the expected values of compute, flattened
    rtol: float = 1e-12
    forward_is_compute: bool = True  # False: forward returns something else than compute on the batch
    bad: tuple[tuple[Any, ...], ...] = ()  # arguments of update that raise a ValueError
    synchronizes: bool = False  # update waits for the device: it reads a value, or works on the host as well
    not_finite: NotFinite = None
    has_data_dependent_keys: bool = False  # the keys of the dictionary from compute depend on the data


@dataclass(frozen=True)
class FunctionCase:
    call: Callable[..., tuple[Tensor, ...]]
    inputs: Callable[[Generator, tuple[int, ...]], tuple[Tensor, ...]]  # (generator, batch shape) -> arguments
    pad: Callable[..., tuple[Tensor, ...]] | None = None  # (garbage, *arguments) -> the same with padding
    unpad: Callable[..., tuple[Tensor, ...]] = lambda results, *arguments: results  # results of padded -> of unpadded
    compiles: bool = False
    rtol: float = 0.0  # 0: bitwise equal; matrix products of different shapes are not
    not_finite: NotFinite = None
