"""Tensors on which numpy functions run: `np.sqrt(x)` becomes `torch.sqrt(x)`, on the device of `x`."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ...core.arguments.checks import as_tensor
from ...core.numbers.quantiles import unsigned_nan
from .errors import PosteriorWarning

# numpy functions whose torch namesakes mean the same, and those that go by another name. Other namesakes are not to be
# trusted: torch.split, torch.median and torch.std, for instance, compute something else.
NAMESAKES = """
all any argmax argmin argwhere broadcast_to column_stack count_nonzero cumprod cumsum diff einsum empty_like flip
full_like hstack isclose isfinite isinf isnan mean nanmean nansum nanquantile ones_like prod quantile
ravel reshape roll squeeze stack sum tile trapezoid tril triu vstack where zeros_like
"""
TWINS: dict[str, Callable] = {name: getattr(torch, name) for name in NAMESAKES.split()} | {
    "amax": torch.amax,
    "amin": torch.amin,
    "max": torch.amax,
    "min": torch.amin,
    "clip": lambda x, a_min=None, a_max=None, **options: torch.clip(x, a_min, a_max, **options),
    "concatenate": torch.cat,
    "expand_dims": torch.unsqueeze,
    "median": lambda x, axis=None, **options: torch.quantile(x, 0.5, axis, **options),
    "nan_to_num": lambda x, copy=True, **options: torch.nan_to_num(x, **options),
    "sort": lambda x, axis=-1: torch.sort(unsigned_nan(x), dim=axis).values,
    "std": lambda x, axis=None, ddof=0, **options: torch.std(x, axis, correction=ddof, **options),
    "var": lambda x, axis=None, ddof=0, **options: torch.var(x, axis, correction=ddof, **options),
}
UFUNC_NAMES = {"power": "pow", "rint": "round", "fabs": "abs", "invert": "bitwise_not"}
_computed_on_the_host: set[str] = set()


class ArrayTensor(Tensor):
    """A view of a tensor that answers numpy's functions and operators; it shares the tensor's memory and device."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        where, (out,) = options.pop("where", True), options.pop("out", (None,))
        twin = getattr(torch, UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__), None) if method == "__call__" else None
        call = ufunc if method == "__call__" else getattr(ufunc, method)
        inputs = tuple(self._as_tensor(x) for x in inputs) if twin else inputs
        result = self._run(twin, call, ufunc.__name__, inputs, options)
        if where is not True:
            elsewhere = torch.zeros_like(result) if out is None else self._as_tensor(out)
            result = torch.where(self._as_tensor(where), result, elsewhere)
        return result if out is None else self._as_tensor(out).copy_(result)

    def __array_function__(self, function: Callable, types: Any, args: Any, options: dict[str, Any]) -> Any:
        twin = TWINS.get(function.__name__) if function.__module__ == "numpy" else None
        if twin:
            args, options = tree_map_only(np.ndarray, self._as_tensor, (args, options))
        return self._run(twin, function, function.__name__, args, options)

    def __array__(self, *args: Any, **options: Any) -> np.ndarray:
        return without_subclass(self).detach().cpu().__array__(*args, **options)

    def _as_tensor(self, x: Any) -> Any:
        # Python numbers become 0-dimensional tensors, which leave the dtype of the others as it is.
        return x if isinstance(x, Tensor) else torch.as_tensor(x, device=self.device).as_subclass(ArrayTensor)

    def _run(self, twin: Callable | None, function: Callable, name: str, args: Any, options: Any) -> Any:
        if twin:
            try:
                return twin(*args, **options)
            except TypeError:  # an option that torch lacks
                pass
        if name not in _computed_on_the_host:
            _computed_on_the_host.add(name)
            warnings.warn(
                f"numpy.{name} has no torch twin for these arguments and computes on the host; "
                "a torch function would stay on the device",
                PosteriorWarning,
                stacklevel=4,
            )
        args, options = tree_map_only(Tensor, np.asarray, (args, options))
        return tree_map_only((np.ndarray, np.generic), self._as_tensor, function(*args, **options))


def as_array(tensor: Any) -> ArrayTensor:
    return as_tensor(tensor).as_subclass(ArrayTensor)


def without_subclass(tensor: Any) -> Tensor:
    return as_tensor(tensor).as_subclass(Tensor)


def conform(owner: str, result: Any, like: Tensor) -> Tensor:
    # result: (rows, K), or (rows,) for K = 1; a tensor or an array  like: (rows, K)  ->  (rows, K)
    """Return the result of an extension as a tensor with the dtype, device and shape of `like`."""
    tensor = without_subclass(as_tensor(result)).to(like)
    shaped = tensor[:, None] if tensor.ndim == 1 and like.shape[1] == 1 else tensor
    if shaped.shape != like.shape:
        expected = f"({like.shape[0]}, {like.shape[1]})" + (f" or ({like.shape[0]},)" if like.shape[1] == 1 else "")
        raise ValueError(f"{owner}: got a result of shape {tuple(tensor.shape)}, wanted {expected}")
    return shaped
