"""The operators `tensormetrics::log_gamma`, `::dirichlet_sums`, `::item_sums` and `::uniforms`, which fill `out`.

Arguments are as in `_reference`, contiguous and on one device: `out` float32 or float64, in the last two float64 alone,
concentrations and weights float64, finite and >= 0, keys int64. Samples are the last axis, neighbours in memory as in a
vector register.
"""

from collections.abc import Callable
from typing import Any

import torch

from .._interruptible import interruptible
from .._native import LIBRARY, say_once
from . import _reference


def _define(reference: Callable[..., None], schema: str, nanoseconds: Callable[..., float]) -> Callable[..., None]:
    name = reference.__name__

    def fallback(out: torch.Tensor, *arguments: Any) -> None:
        say_once(out.device.type, "sampler")
        reference(out, *arguments)

    LIBRARY.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
    LIBRARY.impl(name, fallback, "CompositeExplicitAutograd")
    torch.library.register_fake(f"tensormetrics::{name}", lambda *arguments: None)
    return interruptible(getattr(torch.ops.tensormetrics, name), nanoseconds)


SUMS = "(Tensor(a!) out, Tensor prevalence, Tensor cells, Tensor? weights, Tensor keys, int start) -> ()"
LOGS = "(Tensor(a!) out, Tensor alpha, Tensor keys, int start) -> ()"
ITEMS = "(Tensor(a!) out, Tensor cells, Tensor key, int start) -> ()"
UNIFORMS = "(Tensor(a!) out, Tensor key, int draw) -> ()"
log_gamma = _define(_reference.log_gamma, LOGS, lambda out, *_: 10 * out.numel())
dirichlet_sums = _define(_reference.dirichlet_sums, SUMS, lambda out, _, cells, *__: 2 * out.shape[-1] * cells.numel())
item_sums = _define(_reference.item_sums, ITEMS, lambda out, cells, *_: 2 * out.shape[-1] * cells.numel())
uniforms = _define(_reference.uniforms, UNIFORMS, lambda out, *_: 3 * out.numel())

for _team in ("dirichlet_sums_warp", "dirichlet_sums_block"):  # what the lanes of CUDA do, emulated: for tests
    LIBRARY.define(_team + SUMS)
dirichlet_sums_warp = torch.ops.tensormetrics.dirichlet_sums_warp
dirichlet_sums_block = torch.ops.tensormetrics.dirichlet_sums_block
