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

from . import _gpu_kernels
from ._callers import level_of_caller

FOLDER = Path(__file__).parent
LIBRARIES = "lsa", "dirichlet", "nearest", "sequence", "subsets", "text"
FAMILIES = {"lsa": "solver", "dirichlet": "sampler"}  # libraries with CUDA kernels -> families of `_gpu_kernels`
LIBRARY = torch.library.Library("tensormetrics", "DEF")
UNLOADED: dict[str, str] = {}  # libraries that are there and could not be loaded: why

Reference = TypeVar("Reference", bound=Callable[..., Any])


class Operator(NamedTuple):
    """Of an operator, what a warning and `python -m tensormetrics info` say."""

    library: str
    serves: str  # the public names that call it
    slower: float  # time of the reference over time of the kernel, both on a CPU


OPERATORS: dict[str, Operator] = {}


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
    """The operator `tensormetrics::name(...)`; `fake` gives empty results of the right shapes."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    torch.library.register_fake(f"tensormetrics::{name}", fake, lib=LIBRARY)
    OPERATORS[name] = operator
    return getattr(torch.ops.tensormetrics, name)


def reference(name: str) -> Callable[[Reference], Reference]:
    """Has the decorated function answer for an operator wherever no kernel was built. It may be slow and simple."""

    def register(function: Reference) -> Reference:
        @functools.wraps(function)
        def fallback(*arguments: Any) -> Any:
            say_missing(name, next(each for each in arguments if isinstance(each, torch.Tensor)).device.type)
            return function(*arguments)

        LIBRARY.impl(name, fallback, "CompositeExplicitAutograd")
        if has_kernel(name, "cuda"):
            try_before_use(name, function, "CUDA")
        return function

    return register


def try_before_use(name: str, function: Callable[..., Any], dispatch_key: str) -> None:
    """Put before an operator's kernel the question whether it runs on its tensors' device; else `function` answers."""
    kernel = torch.library.get_kernel(f"tensormetrics::{name}", dispatch_key)
    family = FAMILIES[OPERATORS[name].library]

    def guarded(keys: Any, *arguments: Any) -> Any:
        device = next(each for each in arguments if isinstance(each, Tensor)).device
        if _gpu_kernels.usable(family, device):
            return kernel.call_boxed(keys, *arguments)
        return function(*arguments)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*verriding a previously registered kernel")
        LIBRARY.impl(name, guarded, dispatch_key, with_keyset=True)


@functools.cache
def has_kernel(name: str, device: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"tensormetrics::{name}", device.upper())


def usable(name: str, device: torch.device) -> bool:
    """Whether the kernel for CPU of an operator that has no other can be used. Where it should be there, says once."""
    if device.type != "cpu":
        return False
    if not has_kernel(name, "cpu"):
        say_missing(name, "cpu")
        return False
    return True


vars(usable)["_dynamo_marked_constant"] = True  # as of philox.random_key


@functools.cache
def say_missing(name: str, device: str) -> None:
    operator = OPERATORS[name]
    slower = f"about {operator.slower:g} times slower" if device == "cpu" else "many times slower"
    warnings.warn(
        f"{operator.serves}: there is no native code for {device}, and plain torch answers, {slower}. "
        "`python -m tensormetrics info` says why, and what to do.",
        RuntimeWarning,
        stacklevel=level_of_caller(),
    )


def derivative_wanted(x: Tensor) -> bool:
    """Whether someone asks for derivatives by `x`, backward or forward: operators give none, plain torch must."""
    # Tangents may stand at any level of torch.func, so that forward mode anywhere around is taken for a wish.
    return x.requires_grad and torch.is_grad_enabled() or forward_ad._current_level >= 0


def batch_first(operator: str, run: Callable[..., Any]) -> None:
    """torch.vmap over `operator` runs `run` once, on arguments whose batch dimension is the first, of full size."""

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
