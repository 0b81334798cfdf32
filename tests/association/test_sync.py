"""Scores and resampling do not synchronize with the device: no value is read on the host."""

import functools

import pytest
import torch
from scores import SCORES, random_sets
from torch.utils._python_dispatch import TorchDispatchMode

from tensormetrics import association

CALLS = {
    name: (score, sets) for name, (score, _, sets) in SCORES.items() if sets != "tab"
}  # rnsb checks convergence on the host
CALLS |= {
    "bootstrap_interval": (functools.partial(association.bootstrap_interval, association.weat, replicates=9), "xyab"),
    "target_permutation_p_value": (
        functools.partial(association.target_permutation_p_value, association.rnd, method="approximate", replicates=9),
        "xya",
    ),
    "group_permutation_p_value": (functools.partial(association.group_permutation_p_value, replicates=9), "XA"),
}
for method in ("exact", "approximate"):
    options = dict(method=method, replicates=9)
    CALLS[f"permutation_p_value_{method}"] = (
        lambda x, y, options=options: association.permutation_p_value(x[..., 0], y[..., 0], **options),
        "xy",
    )
    CALLS[f"sign_flip_p_value_{method}"] = (
        lambda x, options=options: association.sign_flip_p_value(x[..., 0], **options),
        "x",
    )


class NoRead(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.overloadpacket not in (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("call", "sets"), CALLS.values(), ids=CALLS.keys())
def test_calls_read_no_value_on_host(call, sets, generator, device):
    tensors = random_sets(sets, generator, device, 2)
    call(*tensors)
    with NoRead():
        call(*tensors)
