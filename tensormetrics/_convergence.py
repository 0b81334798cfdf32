"""Whether a loop on a device may end, as far as the host can know without waiting for the device."""

from collections import deque

import torch
from torch import Tensor

from ._gpu_kernels import is_capturing, is_tracing


class Convergence:
    """The flags of the steps of a loop, of which those are read that have reached the host.

    A step that has nothing left to do must change nothing, since the steps in a GPU's queue run on behind the one that
    ends the loop. In the capture of a CUDA graph and under tracing no flag is read, and the loop runs to its limit.
    """

    def __init__(self) -> None:
        self._flags: deque[Copy] = deque()

    def is_reached(self, unfinished: Tensor) -> bool:
        # unfinished: () bool
        """Return whether a step, this one or an earlier one, is known to have had nothing left to do."""
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
    """A copy of a flag to the host, queued behind what the device is to do before it."""

    def __init__(self, flag: Tensor) -> None:
        self.flag = torch.empty((), dtype=torch.bool, device="cpu", pin_memory=True)
        self.flag.copy_(flag, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(flag.device))

    def has_arrived(self) -> bool:
        """Return whether the copy is complete, without waiting for it."""
        return self._event.query()
