"""What a row of the table says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from tensormetrics._metric import Metric


@dataclass(frozen=True)
class MetricCase:
    make: Callable[[], Metric]
    inputs: Callable[[Generator, int], tuple[Tensor, ...]]  # (generator, items) -> the arguments of update
    oracle: Callable[..., Any]  # the same arguments as numpy arrays -> the numbers that compute gives, flattened
    rtol: float = 1e-12
    forward_is_compute: bool = True  # False: forward answers with something else than compute on the batch
    bad: tuple[tuple[Any, ...], ...] = ()  # arguments of update that raise a ValueError
    waits: bool = False  # update waits for the device: it reads a value, or works on the host as well


@dataclass(frozen=True)
class FunctionCase:
    call: Callable[..., tuple[Tensor, ...]]
    inputs: Callable[[Generator, tuple[int, ...]], tuple[Tensor, ...]]  # (generator, leading shape) -> arguments
    pad: Callable[..., tuple[Tensor, ...]] | None = None  # (garbage, *arguments) -> the same with padding
    unpad: Callable[..., tuple[Tensor, ...]] = lambda results, *arguments: results  # results of padded -> of unpadded
    compiles: bool = False
    rtol: float = 0.0  # 0: equal bit for bit; products of matrices are not, from one shape to another
