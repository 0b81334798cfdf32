"""Checks of arguments: shapes, dtypes, devices and plain numbers. They never read a tensor's values."""

import difflib
import functools
import inspect
import operator
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sized
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")

WEFE = (
    *("calculate_p_value", "distance_type", "p_value_iterations", "p_value_method", "p_value_test_type"),
    *("preprocessor_args", "secondary_preprocessor_args", "word_embedding", "word_embeddings_models"),
)
COMPAT = {  # argument of another package -> the module of `tensormetrics.compat` for it
    **dict.fromkeys(WEFE, "wefe"),
    **dict.fromkeys(("ci_probability", "min_sig_diff", "num_samples"), "prob_conf_mat"),
}
POSITIONAL = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


def check_int(name: str, value: Any, minimum: int) -> int:
    """Return `value` as an int (anything with `__index__` but bool), or raise a ValueError."""
    try:
        integer = operator.index(value)
    except TypeError:
        integer = None
    if integer is None or isinstance(value, bool) or integer < minimum:
        raise ValueError(f"{name}: got {value!r}, wanted an integer >= {minimum}")
    return integer


def check_number(name: str, value: Any, expected: str, predicate: Callable[[float], bool]) -> None:
    """Raise a ValueError unless `value` is a number, no text or bool, for which `predicate` holds."""
    try:
        is_valid = not isinstance(value, str | bool) and predicate(float(value))
    except (TypeError, ValueError, OverflowError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"{name}: got {value!r}, wanted {expected}")


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: got {value!r:.60}, wanted True or False")


def check_type(name: str, value: Any, kind: Any, expected: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name}: got {value!r:.60}, wanted {expected}")


def check_choice(name: str, value: Any, choices: Collection) -> None:
    if not isinstance(value, Hashable) or value not in choices:
        raise ValueError(f"{name}: got {value!r}, wanted one of {', '.join(map(repr, choices))}")


def as_list(name: str, value: Any) -> list:
    """Return the items of a list, an array, ...; TypeError for a str, whose items are characters, and for a scalar."""
    if isinstance(value, str):
        raise TypeError(f"{name}: got the text {value!r:.60}, wanted a list; write [{value!r:.60}]")
    if not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise TypeError(f"{name}: got {value!r:.60}, wanted a list")
    return list(value)


def check_unknown_kwargs(owner: type, unknown: Collection[str]) -> None:
    """Raise a TypeError for an argument that no constructor of a class takes; it names the valid ones."""
    if not unknown:
        return
    names: dict[str, None] = {}  # in their order
    takes_positional = True  # is passed on to the next constructor
    for parameters in constructors(owner):
        valid = (p.name for p in parameters if p.kind is p.KEYWORD_ONLY or (takes_positional and p.kind in POSITIONAL))
        names |= dict.fromkeys(valid)
        takes_positional &= any(p.kind is p.VAR_POSITIONAL for p in parameters)
    _refuse(owner.__name__, min(unknown), names)


def constructors(owner: type) -> Iterator[list[inspect.Parameter]]:
    """Yield the parameters of each constructor of a class and its bases that receives arguments of the user."""
    for base in (base for base in owner.__mro__ if "__init__" in vars(base)):
        _, *parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        yield parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return


def _refuse(owner: str, name: str, names: Collection[str]) -> NoReturn:
    write = compat_hint(name) or "".join(f"; write {close}" for close in near(name, names))
    expected = f"one of {', '.join(names)}" if names else "none"
    raise TypeError(f"{owner}: got the argument {name!r}, wanted {expected}{write}")


def near(name: Any, names: Iterable[str], count: int = 1) -> list[str]:
    """Return the names that are near to an unknown one, regardless of case; none, rather than a distant one."""
    names = {known.lower(): known for known in names}
    return [names[close] for close in difflib.get_close_matches(str(name).lower(), names, count)]


def perhaps(name: Any, names: Iterable[str]) -> str:
    """Return the end of an error message that suggests a near name, "" if there is none."""
    return "".join(f"; perhaps {close!r}" for close in near(name, names))


def compat_hint(name: str) -> str:
    """Return the end of an error message for an argument that a module of `compat` takes, "" for others."""
    return f"; tensormetrics.compat.{COMPAT[name]} takes it" if name in COMPAT else ""


def names_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function so that the TypeError for an unknown keyword names the arguments that it takes."""
    names = [p.name for p in inspect.signature(function).parameters.values() if p.name != "self"]

    @functools.wraps(function)
    def check(*args: P.args, **kwargs: P.kwargs) -> R:
        if unknown := kwargs.keys() - names:
            is_class = function.__name__ == "__init__"
            _refuse(type(args[0]).__name__ if is_class else function.__name__, min(unknown), names)
        return function(*args, **kwargs)

    return check


def tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: got a {type(value).__name__}, wanted a tensor; write torch.as_tensor({name})")
    if value.layout is not torch.strided:
        raise ValueError(f"{name}: got a tensor of layout {value.layout}, wanted a dense one; write {name}.to_dense()")


def as_tensor(value: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Convert to a tensor; numbers, lists and arrays are put on the CPU, whatever torch's default device."""
    return torch.as_tensor(value, dtype=dtype, device=value.device if isinstance(value, Tensor) else "cpu")


def array_as_tensor(value: Any) -> Any:
    """Return an array of numbers (NumPy, CUDA array interface, DLPack) as a tensor, and anything else as it is.

    The arrays of a NamedTuple, and those of a tuple or list that begins with one, are converted as well.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        is_held = value.dtype.kind in "biufc" and value.dtype.itemsize <= (16 if value.dtype.kind == "c" else 8)
        return _numpy_as_tensor(value) if is_held else value  # torch has no longer numbers
    if hasattr(value, "_fields"):
        return value._make(map(array_as_tensor, value))
    if isinstance(value, tuple | list):
        return type(value)(map(array_as_tensor, value)) if value and _is_array(value[0]) else value
    if hasattr(value, "__cuda_array_interface__"):
        return torch.as_tensor(value)
    return torch.from_dlpack(value) if hasattr(value, "__dlpack__") else value


def _numpy_as_tensor(array: np.ndarray) -> Tensor:
    """Return a tensor that shares the array's memory where torch can: not of negative strides or foreign byte order."""
    if not array.dtype.isnative or min(array.strides, default=0) < 0:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.flags.writeable:
        return torch.from_numpy(array)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # such as a mapped file; only read
        return torch.from_numpy(array)


def _is_array(value: Any) -> bool:
    return not isinstance(value, Tensor) and hasattr(value, "__dlpack__")


def takes_arrays(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function of tensors so that it takes arrays too: see `array_as_tensor`."""

    @functools.wraps(function)
    def convert(*args: P.args, **kwargs: P.kwargs) -> R:
        converted = {name: array_as_tensor(value) for name, value in kwargs.items()}
        return function(*map(array_as_tensor, args), **converted)

    return convert


def shape(name: str, value: Tensor, *expected: int | str) -> None:
    """Check a shape against sizes or letters, after an optional "...": shape("x", x, "...", "N", 3)."""
    tensor(name, value)
    free = expected[:1] == ("...",)
    sizes = expected[1:] if free else expected
    tail = value.shape[max(value.ndim - len(sizes), 0) :] if free else value.shape
    has_shape = len(tail) == len(sizes) and all(
        isinstance(size, str) or size == got for size, got in zip(sizes, tail, strict=True)
    )
    if not has_shape:
        pattern = ", ".join(map(str, expected)) + ("," if len(expected) == 1 else "")
        raise ValueError(f"{name}: got shape {tuple(value.shape)}, wanted ({pattern})")


def floating(name: str, value: Tensor) -> None:
    tensor(name, value)
    if not value.dtype.is_floating_point:
        raise ValueError(f"{name}: got {value.dtype}, wanted a floating dtype; write {name}.float()")


def integral(name: str, value: Tensor) -> None:
    tensor(name, value)
    if value.dtype.is_floating_point or value.dtype.is_complex:
        raise ValueError(f"{name}: got {value.dtype}, wanted an integer dtype; write {name}.long()")


def check_consistent_length(**tensors: Sized) -> None:
    for name, value in tensors.items():
        if not hasattr(value, "__len__"):
            raise TypeError(f"{name}: got a {type(value).__name__}, wanted a list; write list({name})")
    if len({len(tensor) for tensor in tensors.values()}) > 1:
        raise ValueError("lengths differ: " + ", ".join(f"{name} has {len(t)}" for name, t in tensors.items()))


def same_device(**tensors: Tensor | None) -> None:
    for name, value in tensors.items():
        if value is not None:
            tensor(name, value)
    devices = {name: tensor.device for name, tensor in tensors.items() if tensor is not None}
    if len(set(devices.values())) > 1:
        got = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"devices differ: {got}; move them with .to(device)")
