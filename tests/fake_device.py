"""A fake GPU: tensors that live on the CPU but report another device, so that calls that a GPU refuses fail here.

Within `Device()` tensors sent to or made on DEVICE are such tensors. Every operator with one among its arguments
computes on the CPU, after a check that its other tensors and its generator are on the device too and that it multiplies
no matrices of integers. `waits` lists the operators that would have made the host wait for a GPU: values read, shapes
that depend on values, copies between host and device. `operators` counts the operators that a GPU would have launched,
`bytes` the bytes that they would have read and written, and `copied` lists the elements of each copy between host and
device, whether the host waits for it or not.

In `Device(kernels=True)` every family of Triton kernels runs: a launch counts as one operator, and is answered by
Triton's interpreter if TRITON_INTERPRET=1, else by `kernel_references`; with `trials=True` after its trial.

Values are those of CUDA where they differ from the CPU's: a quotient by a number is a product with its reciprocal, as
is `mean`; NaN with sign bit sorts first; floats are added by `scatter_add`, `index_add`, `cumsum` and the like in an
order that changes from call to call; an index out of range ends the test, whatever it catches. A tensor that is sent
to DEVICE is on PLACE, as one that is sent to "cuda" is on "cuda:0".
"""

import math
import re
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any
from unittest import mock

import kernel_references
import torch
from kernels import INTERPRETED
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from tensormetrics.core.native import gpu_kernels

DEVICE = torch.device("meta")  # the only device of torch that needs no driver and no kernels
PLACE = torch.device("meta", 0)  # the device that its tensors report
# Operators that the library might call and that CUDA refuses under `torch.use_deterministic_algorithms(True)`.
REFUSED = {"histc", "put", "put_", "kthvalue", "index_reduce", "index_reduce_", "scatter_reduce_prod"}
READ = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "bincount", "_linalg_check_errors", "_linalg_svd"}
READ |= {"_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"}
SUMS = {"scatter_add", "index_add", "scatter_reduce"}  # of floats in any order; index_put sorts before it adds
ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
PRODUCTS = {"mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "addbmm"}


class Elsewhere(Tensor):
    """Tensor on the fake device; `value` is the CPU tensor with its values."""

    @staticmethod
    def __new__(cls, value: Tensor) -> "Elsewhere":
        return Tensor._make_wrapper_subclass(
            cls, value.shape, value.stride(), value.storage_offset(), dtype=value.dtype, device=PLACE
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


class DeviceAssert(BaseException):
    """Index out of range on the device, after which a GPU refuses all work; no `except Exception` survives it."""


class _FactoryMode(TorchFunctionMode):
    """Mode in which torch.tensor, torch.as_tensor and new_tensor copy their data to DEVICE, and DEVICE means PLACE.

    Torch alone would drop the data there without dispatching any operator.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:  # torch.device("cuda") has no index
            return func(*args, **(kwargs or {}))
        args = tuple(PLACE if isinstance(x, torch.device) and x == DEVICE else x for x in args)
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None and torch.device(kwargs["device"]) == DEVICE:
            kwargs["device"] = PLACE
        if func.__name__ == "__setitem__" and type(args[0]) is Elsewhere and isinstance(args[2], int | float):
            args = (*args[:2], torch.tensor(args[2], dtype=args[0].dtype))  # CUDA gets it from a tensor of the host
        if func.__name__ == "new_tensor" and type(args[0]) is Elsewhere:
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype} | kwargs).to(DEVICE)
        data = func in (torch.tensor, torch.as_tensor) and type(args[0]) is not Elsewhere
        if data and kwargs.get("device") == PLACE:
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


def _quotient(x: Tensor, number: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Divide by a number as CUDA does, which passes the reciprocal to its kernel."""
    dtype = torch.result_type(x, number) if rounding_mode is None else x.dtype
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    product = x.to(dtype) * (torch.ones((), dtype=dtype) / number)
    return product if rounding_mode is None else getattr(torch, rounding_mode)(product)


def _mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    total = x.sum(dim, keepdim, dtype=dtype)
    return _quotient(total, x.numel() // max(total.numel(), 1)) if x.numel() else total / 0


def _sort(x: Tensor, dim: int = -1, descending: bool = False, **_: Any) -> tuple[Tensor, Tensor]:
    """Sort the bits of floats as a radix sort does: NaN with sign bit is below -inf."""
    keys = x + 0.0  # -0 and 0 are equal
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    bits = torch.where(keys.isnan() & ~x.signbit(), torch.nan, keys).view(integer)
    order = torch.where(bits < 0, ~bits ^ torch.iinfo(integer).min, bits)
    order = order.sort(dim=dim, descending=descending, stable=True).indices
    return x.gather(dim, order), order


def _scan(join: Any, scan: Any, random: torch.Generator, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Scan two parts, and join the total of the first to the second."""
    x = x.to(dtype or x.dtype)
    n = x.shape[dim] if x.dim() else 0
    if n < 3:
        return scan(x, dim)
    start = int(torch.randint(1, n - 1, (), generator=random))
    first, second = scan(x.narrow(dim, 0, start), dim), scan(x.narrow(dim, start, n - start), dim)
    return torch.cat([first, join(second, first.narrow(dim, start - 1, 1))], dim)


def _permute_addends(name: str, args: list[Any], random: torch.Generator) -> list[Any]:
    """Permute the addends in the arguments of scatter_add, scatter_reduce or index_add."""
    x, dim, index, source, *others = args
    if not x.dim() or not index.dim():
        return args
    if name == "index_add":
        order = torch.randperm(len(index), generator=random)
        return [x, dim, index[order], source.index_select(dim, order), *others]
    order = torch.randperm(index.shape[dim], generator=random)
    source = source[tuple(slice(n) for n in index.shape)]
    return [x, dim, index.index_select(dim, order), source.index_select(dim, order), *others]


def _can_use(name: str, device: torch.device) -> bool:
    return device.type == DEVICE.type and gpu_kernels.family_of(name).kind == "Triton"


class LateCopy:
    """Copy of a flag that has arrived only at the third query, like a copy queued on a GPU after other kernels."""

    def __init__(self, waits: list[str], flag: Tensor) -> None:
        self.waits, self.flag, self.num_queries = waits, flag.value, 0

    def has_arrived(self) -> bool:
        self.num_queries += 1
        return self.num_queries > 2

    def read(self) -> float:
        self.waits.append("read of a copy")
        return self.flag.item()


class Device(TorchDispatchMode):
    def __init__(self, kernels: bool = False, trials: bool = False) -> None:
        super().__init__()
        self.kernels, self.trials = kernels, trials
        self.launched: list[str] = []
        self.waits: list[str] = []
        self.copied: list[int] = []
        self.operators = self.bytes = 0
        self.refused: list[str] = []
        self.unordered: list[str] = []  # operators that added or multiplied floats in an order of their own
        self._random = torch.Generator().manual_seed(0)
        self._patches = ExitStack()

    def __enter__(self) -> "Device":
        self._patches.enter_context(_FactoryMode())
        # DEVICE has neither autocast nor events.
        self._patches.enter_context(mock.patch("torch.autocast", lambda *_, **__: nullcontext()))
        self._patches.enter_context(
            mock.patch("tensormetrics.core.native.convergence.Copy", partial(LateCopy, self.waits))
        )
        if self.kernels:
            if not INTERPRETED:
                kernel_references.import_kernels()
            replacements = {"triton.bind": self._launch} | ({} if self.trials else {"gpu_kernels.can_use": _can_use})
            for name, replacement in replacements.items():
                self._patches.enter_context(mock.patch(f"tensormetrics.core.native.{name}", replacement))
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._patches.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        device_tensors = [x for x in tensors if isinstance(x, Elsewhere)]
        target = torch.device(kwargs.get("device") or (PLACE if device_tensors else "cpu"))
        if name in ("_to_copy", "copy_"):
            to, source = (tensors[0].device, tensors[1].device) if name == "copy_" else (target, tensors[0].device)
            if to != source:
                self.copied.append(tensors[-1].numel())
                if not (kwargs.get("non_blocking") or (name == "copy_" and args[2:] == (True,))):
                    self.waits.append(f"{name} from {source} to {to}")
        elif device_tensors or target.type == DEVICE.type:
            self._check(func, name, tensors, kwargs)
        divides = name in ("div", "div_") and type(args[0]) is Elsewhere and type(args[1]) is not Elsewhere
        args, kwargs = tree_map_only(Elsewhere, lambda x: x.value, (args, dict(kwargs)))
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        try:
            results = self._compute(func, name, args, kwargs, divides) if device_tensors else func(*args, **kwargs)
        except (IndexError, RuntimeError) as error:
            if device_tensors and re.search(r"[Ii]ndex.* out of |out of range: tried", str(error)):
                raise DeviceAssert(f"{name}: {error}") from error
            raise
        if (device_tensors or target.type == DEVICE.type) and not func.is_view:
            num_bytes = sum(map(_bytes, [*device_tensors, *(x for x in tree_leaves(results) if isinstance(x, Tensor))]))
            self.operators += num_bytes > 0 and name not in ALLOCATIONS  # operators on empty tensors launch nothing
            self.bytes += num_bytes
        if target.type != DEVICE.type or (name == "copy_" and tensors[0].device != PLACE):
            return results
        wrapper_of = {id(x.value): x for x in device_tensors}  # in-place operators return their argument
        return tree_map_only(Tensor, lambda x: wrapper_of[id(x)] if id(x) in wrapper_of else Elsewhere(x), results)

    def _launch(self, kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        if not all(isinstance(x, Elsewhere) for x in tensors):
            raise RuntimeError(f"{kernel.__name__}: got a tensor of the CPU")
        self.operators += 1
        self.launched.append(kernel.__name__)
        self.bytes += sum(map(_bytes, tensors))
        arguments = tree_map_only(Elsewhere, lambda x: x.value, arguments)
        with _disable_current_modes():
            if INTERPRETED:
                kernel[grid](*arguments, **options)
            else:
                getattr(kernel_references, kernel.__name__.strip("_"))(*arguments, **options)

    def _compute(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], divides: bool) -> Any:
        base, random = name.removesuffix("_"), self._random
        functions = {"mean": _mean, "sort": _sort, "cumsum": partial(_scan, torch.add, torch.cumsum, random)}
        functions |= {"cumprod": partial(_scan, torch.mul, torch.cumprod, random)}
        if divides:
            result = _quotient(*args, **kwargs)
        elif base in functions and args[0].is_floating_point():
            self.unordered += [name] * base.startswith("cum")
            result = functions[base](*args, **kwargs)
        elif base in SUMS and args[0].is_floating_point():
            self.unordered.append(name)
            return func(*_permute_addends(base, [*args], random), **kwargs)
        else:
            return func(*args, **kwargs)
        return args[0].copy_(result) if name.endswith("_") else result

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
        gets_number = name == "index_put_" and not isinstance(tensors[-1], Elsewhere)
        gets_number = gets_number and all(x.dtype != torch.bool for x in tensors[1:-1])
        has_unknown_size = name == "repeat_interleave" and kwargs.get("output_size") is None
        if name in READ or has_mask or has_unknown_size or gets_number:
            self.waits.append(name)
            self.copied += [1] * (name == "_local_scalar_dense")
