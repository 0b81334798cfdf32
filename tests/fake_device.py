"""A device that is none: tensors that lie on the CPU and say they lie elsewhere, so that what a GPU refuses fails here.

Within `Device()` tensors sent to or made on DEVICE are of that kind. Every operator that meets one computes on the CPU,
after a check that its other tensors and its generator are on the device too and that it multiplies no matrices of
integers. `waits` lists the operators that would have made the host wait for a GPU: values read, shapes that depend on
values, copies between host and device. `operators` counts what would have been launched, `bytes` what it would have
read and written.
"""

import math
from contextlib import ExitStack, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("meta")  # the one device that needs no driver and no kernels
# Operators that CUDA refuses under `torch.use_deterministic_algorithms(True)`, of those that the library might call.
REFUSED = {"histc", "put", "put_", "kthvalue", "index_reduce", "index_reduce_", "scatter_reduce_prod"}
READ = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "bincount", "_linalg_check_errors", "_linalg_svd"}
READ |= {"_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"}
PRODUCTS = {"mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "addbmm"}


class Elsewhere(Tensor):
    """A tensor of the device, around the one on the CPU that has its values."""

    @staticmethod
    def __new__(cls, value: Tensor) -> "Elsewhere":
        return Tensor._make_wrapper_subclass(
            cls, value.shape, value.stride(), value.storage_offset(), dtype=value.dtype, device=DEVICE
        )

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def data_ptr(self) -> int:
        return self.value.data_ptr()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} met a tensor of the pretended device outside of Device()")


class _Made(TorchFunctionMode):
    """Of the data that these make tensors from, torch would keep none on DEVICE, and ask no operator for it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func.__name__ == "new_tensor" and type(args[0]) is Elsewhere:
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype} | kwargs).to(DEVICE)
        data = func in (torch.tensor, torch.as_tensor) and type(args[0]) is not Elsewhere
        if data and kwargs.get("device") == DEVICE:
            return func(*args, **kwargs | {"device": "cpu"}).to(DEVICE)
        return func(*args, **kwargs)


def _bytes(x: Tensor) -> int:
    # Along a dimension without a stride, the same numbers are read again.
    return x.element_size() * math.prod(n for n, stride in zip(x.shape, x.stride(), strict=True) if stride)


def _is_refused(func: Any, given: list[Tensor], kwargs: dict[str, Any]) -> bool:
    """Whether deterministic mode refuses an operator on CUDA; see torch.use_deterministic_algorithms."""
    name, overload = func._schema.name.removeprefix("aten::"), func._overloadname
    if name in ("cumsum", "cumsum_"):
        return given[0].is_floating_point() or given[0].is_complex()
    if name == "median":
        return overload.startswith("dim")
    return name in REFUSED or (name == "bincount" and len(given) > 1)


class LateCopy:
    """A flag's copy that arrives when it is asked for the third time, as one behind the steps in a GPU's queue."""

    def __init__(self, flag: Tensor) -> None:
        self.flag, self.asked = flag.value, 0

    def has_arrived(self) -> bool:
        self.asked += 1
        return self.asked > 2


class Device(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.operators = self.bytes = 0
        self.refused: list[str] = []
        self._others = ExitStack()

    def __enter__(self) -> "Device":
        self._others.enter_context(_Made())
        self._others.enter_context(mock.patch("torch.autocast", lambda *_, **__: nullcontext()))  # knows no DEVICE
        self._others.enter_context(mock.patch("tensormetrics._convergence.Copy", LateCopy))  # there is no event
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._others.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        away = [x for x in given if isinstance(x, Elsewhere)]
        target = torch.device(kwargs.get("device") or (DEVICE if away else "cpu"))
        if name in ("_to_copy", "copy_"):
            to, source = (given[0].device, given[1].device) if name == "copy_" else (target, given[0].device)
            if to != source and not kwargs.get("non_blocking"):
                self.waits.append(f"{name} from {source} to {to}")
        elif away or target == DEVICE:
            self._check(func, name, given, kwargs)
        args, kwargs = tree_map_only(Elsewhere, lambda x: x.value, (args, dict(kwargs)))
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        results = func(*args, **kwargs)
        if (away or target == DEVICE) and not func.is_view:
            touched = sum(map(_bytes, [*away, *(x for x in tree_leaves(results) if isinstance(x, Tensor))]))
            self.operators += touched > 0  # of empty tensors nothing is launched
            self.bytes += touched
        if target != DEVICE or (name == "copy_" and given[0].device != DEVICE):
            return results
        changed = {id(x.value): x for x in away}  # in place: the answer is the argument itself
        return tree_map_only(Tensor, lambda x: changed[id(x)] if id(x) in changed else Elsewhere(x), results)

    def _check(self, func: Any, name: str, given: list[Tensor], kwargs: dict[str, Any]) -> None:
        strays = [tuple(x.shape) for x in given if not isinstance(x, Elsewhere) and x.dim()]
        if strays:
            raise RuntimeError(f"{name}: tensors of shape {strays} are on the CPU, others on the device")
        if kwargs.get("generator") is not None:
            raise RuntimeError(f"{name}: a generator of the CPU draws on the device")
        if name in PRODUCTS and not (given[-1].is_floating_point() or given[-1].is_complex()):
            raise RuntimeError(f"{name}: a GPU multiplies no matrices of {given[-1].dtype}")
        if _is_refused(func, given, kwargs):
            self.refused.append(str(func))
        masks = name in ("index", "index_put", "index_put_") and any(x.dtype == torch.bool for x in given[1:])
        masks = masks and (name == "index" or given[-1].numel() != 1)  # a mask set to a number only fills
        repeats = name == "repeat_interleave" and kwargs.get("output_size") is None
        if name in READ or masks or repeats:
            self.waits.append(name)
