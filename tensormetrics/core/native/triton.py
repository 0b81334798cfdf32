"""Launches of Triton kernels.

Triton binds and specializes every argument in Python at each launch. `launch` keeps the compiled kernel of each
specialization and hands later arguments to it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_READY: dict[tuple, tuple[Any, tuple]] = {}  # specialization of a launch -> compiled kernel, constants in order
_IS_PLAIN: dict[Any, tuple[bool, ...]] = {}  # kernel -> whether the value of each argument is not specialized
_is_trusted = True  # whether compiled kernels may be launched without Triton's own binding


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launch a kernel on the device of its first argument; `options` are its constants and those of the compiler."""
    device = arguments[0].device
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        with torch.cuda.device(device):
            return _launch(kernel, grid, device.index, arguments, options)
    _launch(kernel, grid, device.index, arguments, options)


def _launch(
    kernel: Any, grid: tuple[int, ...], device: int | None, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    key = kernel, device, *options.items(), *_specialization(kernel, arguments)
    ready = _READY.get(key) if _is_trusted else None
    if ready is not None:
        _run(*ready, grid, arguments)
    elif (compiled := bind(kernel, grid, arguments, options)) is not None:  # the interpreter returns nothing
        _READY[key] = compiled, tuple(options[name] for name in kernel.arg_names[len(arguments) :])


def bind(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Launch a kernel as Triton does, and return what it compiled."""
    return kernel[grid](*arguments, **options)


def _specialization(kernel: Any, arguments: tuple[Any, ...]) -> list[Any]:
    """Return what Triton compiles into a kernel: dtypes, and which pointers and integers are divisible by 16."""
    if kernel not in _IS_PLAIN:
        _IS_PLAIN[kernel] = tuple(param.do_not_specialize for param in getattr(kernel, "params", ()))
    key: list[Any] = []
    bits = 1  # of all arguments in turn
    for argument, is_plain in zip(arguments, _IS_PLAIN[kernel], strict=False):
        if isinstance(argument, Tensor):
            key.append(argument.dtype)
            bits = 2 * bits + (argument.data_ptr() & 15 == 0)
        elif type(argument) is int:
            bits = 4 * bits + (-(2**31) <= argument < 2**31) + (argument >= 2**63) * 2
            if not is_plain:
                bits = 4 * bits + (argument == 1) + (argument & 15 == 0) * 2
        else:
            key.append(type(argument))
    key.append(bits)
    return key


def _run(compiled: Any, constants: tuple, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
    from triton import knobs
    from triton.runtime import driver

    size = (*grid, 1, 1)[:3]
    hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    if any(getattr(hook, "calls", hook) for hook in hooks):  # of a profiler, which wants to know more
        return compiled[size](*arguments, *constants)
    stream = driver.active.get_current_stream(driver.active.get_current_device())
    metadata = compiled.packed_metadata, None, None, None  # no hook
    compiled.run(*size, stream, compiled.function, *metadata, *arguments, *constants)


def try_compiled(trial: Callable[[torch.device], bool], device: torch.device) -> None:
    """Repeat a successful trial of kernels with launches of compiled ones; if it fails now, bind all arguments."""
    global _is_trusted
    try:
        _is_trusted = _is_trusted and trial(device)
    except torch.OutOfMemoryError:  # says nothing about the interface
        raise
    except (TypeError, ValueError, AttributeError, RuntimeError):  # the interface of compiled kernels is not public
        _is_trusted = False


@contextmanager
def binding() -> Iterator[None]:
    """Launch as Triton does."""
    global _is_trusted
    previous, _is_trusted = _is_trusted, False
    try:
        yield
    finally:
        _is_trusted = previous
