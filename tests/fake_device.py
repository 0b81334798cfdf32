"""A fake GPU: tensors that live on the CPU but report another device, so that calls that a GPU refuses fail here.

Within `Device()` tensors sent to or made on DEVICE are such tensors. Every operator with one among its arguments
computes on the CPU, after a check that its other tensors and its generator are on the device too and that it multiplies
no matrices of integers. `waits` lists the operators that would have made the host wait for a GPU: values read, shapes
that depend on values, copies between host and device. `operators` counts the operators that a GPU would have launched,
`bytes` the bytes that they would have read and written.
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

DEVICE = torch.device("meta")  # the only device of torch that needs no driver and no kernels
# Operators that the library might call and that CUDA refuses under `torch.use_deterministic_algorithms(True)`.
REFUSED = {"histc", "put", "put_", "kthvalue", "index_reduce", "index_reduce_", "scatter_reduce_prod"}
READ = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "bincount", "_linalg_check_errors", "_linalg_svd"}
READ |= {"_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"}
PRODUCTS = {"mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "addbmm"}


class Elsewhere(Tensor):
    """Tensor on the fake device; `value` is the CPU tensor with its values."""

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
        raise RuntimeError(f"{func} got a tensor of the fake device outside of Device()")


class _FactoryMode(TorchFunctionMode):
    """Mode in which torch.tensor, torch.as_tensor and new_tensor copy their data to DEVICE.

    Torch alone would drop the data there without dispatching any operator.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func.__name__ == "new_tensor" and type(args[0]) is Elsewhere:
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype} | kwargs).to(DEVICE)
        data = func in (torch.tensor, torch.as_tensor) and type(args[0]) is not Elsewhere
        if data and kwargs.get("device") == DEVICE:
            return func(*args, **kwargs | {"device": "cpu"}).to(DEVICE)
        return func(*args, **kwargs)


def _bytes(x: Tensor) -> int:
    # A dimension of stride 0 reads the same memory again.
    return x.element_size() * math.prod(n for n, stride in zip(x.shape, x.stride(), strict=True) if stride)


def _is_refused(func: Any, tensors: list[Tensor], kwargs: dict[str, Any]) -> bool:
    """Return whether deterministic mode refuses an operator on CUDA; see torch.use_deterministic_algorithms."""
    name, overload = func._schema.name.removeprefix("aten::"), func._overloadname
    if name in ("cumsum", "cumsum_"):
        return tensors[0].is_floating_point() or tensors[0].is_complex()
    if name == "median":
        return overload.startswith("dim")
    return name in REFUSED or (name == "bincount" and len(tensors) > 1)


class LateCopy:
    """Copy of a flag that has arrived only at the third query, like a copy queued on a GPU after other kernels."""

    def __init__(self, flag: Tensor) -> None:
        self.flag, self.num_queries = flag.value, 0

    def has_arrived(self) -> bool:
        self.num_queries += 1
        return self.num_queries > 2


class Device(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []
        self.operators = self.bytes = 0
        self.refused: list[str] = []
        self._patches = ExitStack()

    def __enter__(self) -> "Device":
        self._patches.enter_context(_FactoryMode())
        # DEVICE has neither autocast nor events.
        self._patches.enter_context(mock.patch("torch.autocast", lambda *_, **__: nullcontext()))
        self._patches.enter_context(mock.patch("tensormetrics.core.native.convergence.Copy", LateCopy))
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._patches.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        device_tensors = [x for x in tensors if isinstance(x, Elsewhere)]
        target = torch.device(kwargs.get("device") or (DEVICE if device_tensors else "cpu"))
        if name in ("_to_copy", "copy_"):
            to, source = (tensors[0].device, tensors[1].device) if name == "copy_" else (target, tensors[0].device)
            if to != source and not kwargs.get("non_blocking"):
                self.waits.append(f"{name} from {source} to {to}")
        elif device_tensors or target == DEVICE:
            self._check(func, name, tensors, kwargs)
        args, kwargs = tree_map_only(Elsewhere, lambda x: x.value, (args, dict(kwargs)))
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        results = func(*args, **kwargs)
        if (device_tensors or target == DEVICE) and not func.is_view:
            num_bytes = sum(map(_bytes, [*device_tensors, *(x for x in tree_leaves(results) if isinstance(x, Tensor))]))
            self.operators += num_bytes > 0  # operators on empty tensors launch nothing
            self.bytes += num_bytes
        if target != DEVICE or (name == "copy_" and tensors[0].device != DEVICE):
            return results
        wrapper_of = {id(x.value): x for x in device_tensors}  # in-place operators return their argument
        return tree_map_only(Tensor, lambda x: wrapper_of[id(x)] if id(x) in wrapper_of else Elsewhere(x), results)

    def _check(self, func: Any, name: str, tensors: list[Tensor], kwargs: dict[str, Any]) -> None:
        cpu_shapes = [tuple(x.shape) for x in tensors if not isinstance(x, Elsewhere) and x.dim()]
        if cpu_shapes:
            raise RuntimeError(f"{name}: tensors of shape {cpu_shapes} are on the CPU, others on the device")
        if kwargs.get("generator") is not None:
            raise RuntimeError(f"{name}: a generator of the CPU draws on the device")
        if name in PRODUCTS and not (tensors[-1].is_floating_point() or tensors[-1].is_complex()):
            raise RuntimeError(f"{name}: a GPU multiplies no matrices of {tensors[-1].dtype}")
        if _is_refused(func, tensors, kwargs):
            self.refused.append(str(func))
        has_mask = name in ("index", "index_put", "index_put_") and any(x.dtype == torch.bool for x in tensors[1:])
        # Setting masked entries to one value only fills them.
        has_mask = has_mask and (name == "index" or tensors[-1].numel() != 1)
        has_unknown_size = name == "repeat_interleave" and kwargs.get("output_size") is None
        if name in READ or has_mask or has_unknown_size:
            self.waits.append(name)
