"""How objects print: the call of their constructor, and the size of what they hold."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor
from typing_extensions import Self  # torch brings it

from .docstrings import Docstring

ADDRESS = re.compile(r"<(?:function |built-in method )?(\S+)[^<>]* at 0x[0-9a-f]+>")


class RecordedArguments:
    """Base of modules that print the arguments of their constructor; named before `torch.nn.Module`."""

    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if isinstance(text := vars(cls).get("__doc__"), str):
            type.__setattr__(cls, "__doc__", Docstring(text))

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "_arguments", (args, kwargs))
        return made

    def _sizes(self) -> dict[str, int]:
        """Return how much the object holds, by name."""
        return {}

    def extra_repr(self) -> str:
        """Return the arguments of the constructor that are not its defaults, and sizes."""
        args, kwargs = self._arguments
        signature = inspect.signature(type(self).__init__)
        arguments = signature.bind(self, *args, **kwargs).arguments
        packed = next((n for n, p in signature.parameters.items() if p.kind is p.VAR_KEYWORD), "")
        flat = {**arguments, **arguments.pop(packed, {})}
        children = getattr(self, "_modules", {})  # which a module prints itself
        options = {name: value for name, value in flat.items() if name not in ("self", packed, *children)}
        return keywords(type(self).__init__, options | self._sizes())


class ConstructorRepr(RecordedArguments):
    """Base of other objects that print the arguments of their constructor.

    Raises:
        ValueError: If an option, or data that it is applied to, has a wrong value, shape or dtype.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


def keywords(function: Any, values: Mapping[str, Any]) -> str:
    """Return the values that are not defaults of a function's parameters, as keyword arguments are written."""
    parameters = inspect.signature(function).parameters
    return ", ".join(
        f"{name}={shown(value)}"
        for name, value in values.items()
        if name not in parameters or not _is_default(value, parameters[name].default)
    )


def shown(value: Any) -> str:
    """Return a text without addresses: tensors by shape, functions and objects without a `repr` by name."""
    if isinstance(value, Tensor | np.ndarray):
        return f"tensor of {tuple(value.shape)}"
    return getattr(value, "__qualname__", None) or ADDRESS.sub(r"\1", repr(value))


def _is_default(value: Any, default: Any) -> bool:
    return value is default or repr(value) == repr(default)
