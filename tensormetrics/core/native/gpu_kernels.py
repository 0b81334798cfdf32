"""Whether a family of the library's GPU kernels runs on a device: one trial decides, and holds for the process.

That Triton can be imported, or that a CUDA library was loaded, does not say that a kernel runs: a C compiler may be
missing, the library may hold no code for this card, or the driver may be older than the compiler. So at its first use
on a device each family answers a tiny question, and its answer is compared with that of the CPU. The package that owns
the kernels registers this trial (`register_trial`). A family that fails is replaced by plain torch, with one warning.
"""

import functools
import os
import re
import shutil
import sysconfig
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch._guards import detect_fake_mode

from ..arguments.callers import level_of_caller
from .triton import binding, try_compiled

OLDEST_FOR_TRITON = 8, 0  # compute capability; below, kernels lack tensor core products or spill their registers


class KernelFamily(NamedTuple):
    """Kernels that one trial represents."""

    kind: Literal["Triton", "CUDA"]
    used_by: str  # public names that use them
    needs: tuple[str, ...]  # families whose kernels run together with these
    trial: Callable[[torch.device], bool]  # whether a device answers as the CPU does


FAMILIES: dict[str, KernelFamily] = {}


def register_trial(
    family: str,
    kind: Literal["Triton", "CUDA"],
    used_by: str,
    trial: Callable[[torch.device], bool],
    needs: tuple[str, ...] = (),
) -> None:
    """Register the trial of a family of kernels; the package that owns them does so when it is imported."""
    FAMILIES[family] = KernelFamily(kind, used_by, needs, trial)


def family_of(name: str) -> KernelFamily:
    """Return a registered family.

    Raises:
        LookupError: If nobody registered it, which does not mean that its kernels do not run.
    """
    if name not in FAMILIES:
        known = ", ".join(map(repr, FAMILIES)) or "none"
        raise LookupError(f"family: got {name!r}, wanted a registered one ({known}); import the package that owns it")
    return FAMILIES[name]


def sample_input(*shape: int) -> Tensor:
    """Return the input of a trial: normal numbers on the CPU."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32, device="cpu")


def is_equal_on(
    device: torch.device, compute: Callable[..., tuple[Tensor, ...]], *inputs: Tensor, rtol: float = 0
) -> bool:
    """Return whether a function of tensors gives on a device what it gives on the CPU."""
    expected, results = compute(*inputs), compute(*(x.to(device) for x in inputs))
    pairs = zip(expected, results, strict=True)
    return all(torch.allclose(x.double(), y.double().cpu(), rtol=rtol, atol=0, equal_nan=True) for x, y in pairs)


class Answer(NamedTuple):
    """Result of a trial: whether a family runs on a device."""

    runs: bool
    reason: str = ""  # why it does not run, and the remedy


# Errors of a capture that another thread began, and of `set_sync_debug_mode`: a later trial may succeed.
MOMENTARY = r"captur|synchronizing CUDA operation"
_ANSWERS: dict[tuple[str, int], Answer] = {}
_LOCK = threading.RLock()
_THREAD = threading.local()  # .families: see `only`


def _forget_lock() -> None:
    global _LOCK
    _LOCK = threading.RLock()  # another thread may have held it when this process was forked


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_forget_lock)


def can_use(name: str, device: torch.device) -> bool:
    """Return whether the kernels of a family run on a device; the first call on a GPU tries them.

    Tracing (`torch.compile`, fake tensors, functorch) always takes the plain path.

    Raises:
        LookupError: If the family is not registered.
        RuntimeError: If a CUDA graph is being captured before the family was tried.
    """
    family = family_of(name)
    if not is_gpu(device) or is_tracing():
        return False
    families = getattr(_THREAD, "families", None)
    if families is not None:
        return name in families
    key = name, _index(device)
    if key not in _ANSWERS:
        if is_capturing():
            raise RuntimeError(
                f"{family.used_by}: got a CUDA graph capture before the first use of the {name} kernels on "
                f"{device}, wanted one that was tried; call it once before capturing"
            )
        with _LOCK:
            if key not in _ANSWERS:
                answer = ask(name, device)
                if answer is None:
                    return False
                _ANSWERS[key] = answer
                if not answer.runs and not kernels_disabled():
                    _warn(name, device, answer)
    return _ANSWERS[key].runs


def answers(device: torch.device) -> dict[str, Answer]:
    """Return the result of each family on a GPU, after trying the untried ones."""
    for name in FAMILIES:
        can_use(name, device)
    return {name: _ANSWERS.get((name, _index(device)), Answer(False, "out of memory")) for name in FAMILIES}


def ask(name: str, device: torch.device) -> Answer | None:
    """Try a family on a device and return the result; None if it failed for a reason of the moment, such as memory."""
    family = family_of(name)
    if kernels_disabled():
        return Answer(False, "TENSORMETRICS_PLAIN=1 switches the library's own kernels off")
    reason = _obstacle(family, device)
    if reason:
        return Answer(False, reason)
    missing = [name for name in family.needs if not can_use(name, device)]
    if missing:
        return Answer(False, f"the {missing[0]} kernels do not run")
    try:
        with _undisturbed(device), only(name, *family.needs):
            with binding():
                is_equal = family.trial(device)
            if is_equal and family.kind == "Triton":
                try_compiled(family.trial, device)
    except Exception as error:  # any error of a compiler, a driver or a kernel means that it does not run
        if isinstance(error, torch.OutOfMemoryError) or re.search(MOMENTARY, str(error)):
            return None
        line = (str(error).strip() or "no message").splitlines()[0]
        return Answer(False, f"its trial raised {type(error).__name__}: {line:.200}{_advice(family)}")
    return Answer(is_equal, "" if is_equal else "its trial gave other values than the CPU; please report this card")


def is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def is_tracing() -> bool:
    if torch.compiler.is_compiling():
        return True
    return torch._C._functorch.peek_interpreter_stack() is not None or detect_fake_mode() is not None


def is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


@functools.cache
def kernels_disabled() -> bool:
    """Return whether the environment switches the library's own GPU kernels off, as read at the first use of a GPU."""
    return os.environ.get("TENSORMETRICS_PLAIN", "0") not in ("", "0")


def _index(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None and device.type == "cuda" else device.index or 0


def _obstacle(family: KernelFamily, device: torch.device) -> str:
    """Return the reason why a family cannot run without a trial, or an empty text."""
    if family.kind == "CUDA":
        return ""
    if find_spec("triton") is None:
        return "triton is not installed; write pip install triton"
    capability = capability_of(device)
    if capability < OLDEST_FOR_TRITON:
        return f"the card's compute capability is {capability[0]}.{capability[1]}, wanted at least 8.0"
    return ""


def capability_of(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def _advice(family: KernelFamily) -> str:
    if family.kind == "CUDA":
        return "; the library may hold no code for this card or be newer than the driver: see `tensormetrics info`"
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        return "; Triton found no C compiler: install gcc, or set CC"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "; Triton needs Python.h: install the headers of this Python, such as python3-dev"
    return ""


def _warn(name: str, device: torch.device, answer: Answer) -> None:
    warnings.warn(
        f"{FAMILIES[name].used_by}: the {name} kernels do not run on {device}: {answer.reason}. Plain torch answers, "
        "more slowly; `tensormetrics info --gpu` tries all kernels.",
        RuntimeWarning,
        stacklevel=level_of_caller(),
    )


@contextmanager
def only(*families: str) -> Iterator[None]:
    """Use the kernels of these families in this thread, untried, and no others."""
    previous = getattr(_THREAD, "families", None)
    _THREAD.families = families
    try:
        yield
    finally:
        _THREAD.families = previous


@contextmanager
def _undisturbed(device: torch.device) -> Iterator[None]:
    """Try under torch's default settings, and restore those of the caller."""
    dtype, is_deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    sync_mode = torch.cuda.get_sync_debug_mode() if torch.cuda.is_available() else 0
    try:
        if sync_mode:
            torch.cuda.set_sync_debug_mode(0)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        if sync_mode:
            torch.cuda.set_sync_debug_mode(sync_mode)
        torch.use_deterministic_algorithms(is_deterministic, warn_only=warn_only)
        torch.set_default_dtype(dtype)
