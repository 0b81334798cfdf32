"""The namespace of the native operators, and the libraries that hold their kernels for CPU and CUDA.

Every operator has a schema and a fake kernel (`define`), and a reference in torch (`reference`), which answers on
devices for which no kernel was built, and says so once.
"""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..arguments.callers import level_of_caller
from . import gpu_kernels

FOLDER = Path(__file__).parents[2]  # of the package, where the libraries are
LIBRARIES = "lsa", "dirichlet", "nearest", "sequence", "subsets", "text"
FAMILIES = {"lsa": "solver", "dirichlet": "sampler"}  # libraries with CUDA kernels -> families of `gpu_kernels`
LIBRARY = torch.library.Library("tensormetrics", "DEF")
UNLOADED: dict[str, str] = {}  # libraries that exist but could not be loaded, with the reason

Reference = TypeVar("Reference", bound=Callable[..., Any])


class Operator(NamedTuple):
    """Description of an operator in warnings and in `python -m tensormetrics info`."""

    library: str
    used_by: str  # public names that call it
    slower: float  # time of the reference over time of the kernel, both on a CPU


OPERATORS: dict[str, Operator] = {}
REFERENCES: dict[str, Callable[..., Any]] = {}


def _load() -> None:
    for name in LIBRARIES:
        for path in (FOLDER / f"_{name}.so", FOLDER / f"_{name}_cuda.so"):
            if path.exists() and (torch.version.cuda or not path.stem.endswith("_cuda")):
                try:
                    torch.ops.load_library(path)
                except OSError as error:
                    UNLOADED[path.stem[1:]] = str(error)


_load()


def define(schema: str, fake: Callable[..., Any], operator: Operator) -> Any:
    """Define the operator `tensormetrics::name(...)`; `fake` returns empty results of the right shapes."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    torch.library.register_fake(f"tensormetrics::{name}", fake, lib=LIBRARY)
    OPERATORS[name] = operator
    return getattr(torch.ops.tensormetrics, name)


def reference(name: str) -> Callable[[Reference], Reference]:
    """Use the decorated function for an operator wherever no kernel was built. It may be slow and simple."""

    def register(function: Reference) -> Reference:
        @functools.wraps(function)
        def fallback(*arguments: Any) -> Any:
            warn_missing(name, next(x for x in arguments if isinstance(x, torch.Tensor)).device.type)
            return function(*arguments)

        REFERENCES[name] = function
        LIBRARY.impl(name, fallback, "CompositeExplicitAutograd")
        if has_kernel(name, "cuda"):
            try_before_use(name, function, "CUDA")
        return function

    return register


def on_gpu(name: str, family: str) -> Callable[[Reference], Reference]:
    """Use the decorated function, which launches Triton kernels, for CUDA tensors of an operator; see `reference`."""

    def register(function: Reference) -> Reference:
        fallback = REFERENCES[name]

        def guarded(*arguments: Any) -> Any:
            device = next(x for x in arguments if isinstance(x, Tensor)).device
            return (function if gpu_kernels.can_use(family, device) else fallback)(*arguments)

        LIBRARY.impl(name, guarded, "CUDA")
        return function

    return register


def try_before_use(name: str, function: Callable[..., Any], dispatch_key: str) -> None:
    """Put before an operator's kernel the question whether it runs on its tensors' device; else `function` answers."""
    kernel = torch.library.get_kernel(f"tensormetrics::{name}", dispatch_key)
    family = FAMILIES[OPERATORS[name].library]

    def guarded(keys: Any, *arguments: Any) -> Any:
        device = next(argument for argument in arguments if isinstance(argument, Tensor)).device
        if gpu_kernels.can_use(family, device):
            return kernel.call_boxed(keys, *arguments)
        return function(*arguments)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*verriding a previously registered kernel")
        LIBRARY.impl(name, guarded, dispatch_key, with_keyset=True)


@functools.cache
def has_kernel(name: str, device: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"tensormetrics::{name}", device.upper())


def can_use_kernel(name: str, device: torch.device) -> bool:
    """Return whether the CPU kernel of an operator without another kernel can be used; warn once if it is missing."""
    if device.type != "cpu":
        return False
    if not has_kernel(name, "cpu"):
        warn_missing(name, "cpu")
        return False
    return True


vars(can_use_kernel)["_dynamo_marked_constant"] = True  # as of philox.random_key


@functools.cache
def warn_missing(name: str, device: str) -> None:
    operator = OPERATORS[name]
    slower = f"about {operator.slower:g} times slower" if device == "cpu" else "many times slower"
    warnings.warn(
        f"{operator.used_by}: there is no native code for {device}, and plain torch answers, {slower}. "
        "`python -m tensormetrics info` says why, and what to do.",
        RuntimeWarning,
        stacklevel=level_of_caller(),
    )


def needs_derivative(x: Tensor) -> bool:
    """Return whether derivatives by `x` are needed, which only plain torch supports."""
    # Tangents may live at any functorch level, so any active forward-mode level counts as needing derivatives.
    return x.requires_grad and torch.is_grad_enabled() or forward_ad._current_level >= 0


def batch_first(operator: str, run: Callable[..., Any]) -> None:
    """Register torch.vmap over `operator`: `run` is called once, with the batch dimension first, of full size."""

    def batched(info: Any, in_dims: tuple, *arguments: Any) -> tuple[Any, Any]:
        moved = (
            value if not isinstance(value, Tensor)
            else value.expand(info.batch_size, *value.shape) if dim is None
            else value.movedim(dim, 0)
            for value, dim in zip(arguments, in_dims, strict=True)
        )  # fmt: skip
        result = run(*moved)
        return result, 0 if isinstance(result, Tensor) else (0,) * len(result)

    torch.library.register_vmap(operator, batched, lib=LIBRARY)
