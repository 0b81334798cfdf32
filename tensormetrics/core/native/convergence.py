"""Detection, without synchronization, that a loop on a device has converged."""

from collections import deque

import torch
from torch import Tensor

from .gpu_kernels import is_capturing, is_tracing


class Convergence:
    """Convergence flags of the steps of a loop, read as soon as they have reached the host.

    A step after convergence must change nothing, since a GPU still runs the steps in its queue after the one that ends
    the loop. In the capture of a CUDA graph and under tracing no flag is read, and the loop runs to its limit.
    """

    def __init__(self) -> None:
        self._flags: deque[Copy] = deque()

    def is_reached(self, unfinished: Tensor) -> bool:
        # unfinished: () bool
        """Return whether this or an earlier step is known to have converged."""
        if unfinished.device.type == "cpu":
            return not unfinished.item()
        if is_tracing() or is_capturing():
            return False
        self._flags.append(Copy(unfinished))
        while self._flags and self._flags[0].has_arrived():
            if not self._flags.popleft().flag.item():
                return True
        return False


class Copy:
    """Asynchronous copy of a flag, or of another number, to the host, in the order of the device's queue."""

    def __init__(self, flag: Tensor) -> None:
        self.flag = torch.empty((), dtype=flag.dtype, device="cpu", pin_memory=True)
        self.flag.copy_(flag, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(flag.device))

    def has_arrived(self) -> bool:
        """Return whether the copy is complete, without waiting for it."""
        return self._event.query()

    def read(self) -> float:
        """Wait for the copy alone, not for what was queued after it."""
        self._event.synchronize()
        return self.flag.item()
