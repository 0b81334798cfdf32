"""Calls of native operators that Ctrl-C can end."""

import ctypes
import functools
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LONG = 1e8  # nanoseconds of one core; a separate thread costs a call about 10^5


def interruptible(operator: Callable, nanoseconds: Callable[..., float]) -> Callable:
    """Make long calls of an operator on a CPU end within about a second of Ctrl-C.

    `nanoseconds`, of the same positional arguments, estimates the time of one core from their shapes alone. A long
    call of the main thread is made by another thread, while the main thread waits, which Python can interrupt; the
    loops in csrc then read the flag of that call (common/interrupt.h). Short calls are made directly.
    """

    def call(*arguments: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling() or nanoseconds(*arguments) < LONG or not _may_wait(arguments):
            return operator(*arguments, **options)
        return _in_another_thread(functools.partial(operator, *arguments, **options))

    return call


def _may_wait(arguments: tuple[Any, ...]) -> bool:
    """Return whether Ctrl-C can arrive here, and no state of this thread changes the operator."""
    return (
        threading.current_thread() is threading.main_thread()
        and callable(signal.getsignal(signal.SIGINT))
        and all(type(x) is Tensor and x.device.type == "cpu" for x in arguments if isinstance(x, Tensor))
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._functorch.peek_interpreter_stack() is None
        and bool(_setters())
    )


@functools.cache
def _setters() -> list[Callable[[Any], None]]:
    """Return the functions of the loaded native libraries that set the flag of this thread's calls."""
    setters: list[Callable[[Any], None]] = []
    for path in Path(__file__).parents[2].glob("_*.*"):
        if path.suffix in (".so", ".dylib"):
            try:
                setters.append(ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LOCAL).tensormetrics_stop_flag)
            except (OSError, AttributeError):  # one that was not loaded, or has nothing to stop
                continue
    return setters


def _in_another_thread(call: Callable[[], Any]) -> Any:
    stop, done = ctypes.c_int8(0), threading.Event()
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    result: list[Any] = []
    error: list[BaseException] = []

    def work() -> None:
        for tell in _setters():
            tell(ctypes.byref(stop))
        try:
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                result.append(call())
        except BaseException as raised:
            error.append(raised)
        finally:
            done.set()

    try:
        threading.Thread(target=work, name="tensormetrics").start()
        while not done.wait(1):  # Thread.join takes a thread for ended when it is interrupted
            pass
    except BaseException:  # KeyboardInterrupt, or whatever else a handler of signals raises
        stop.value = 1
        done.wait()
        raise
    if error:
        raise error[0]
    return result[0]
