"""The operators `tensormetrics::log_gamma`, `::dirichlet_sums`, `::item_sums` and `::uniforms`, which fill `out`.

Arguments are as in `_reference`, contiguous and on one device: `out` float32 or float64, in the last two float64 alone,
concentrations and weights float64, finite and >= 0, keys int64. Samples are the last axis, neighbors in memory as in a
vector register.
"""

from collections.abc import Callable

from ...core.native import native
from ...core.native.interruptible import interruptible
from . import reference


def _define(
    reference: Callable[..., None], schema: str, nanoseconds: Callable[..., float], used_by: str, slower: float
) -> Callable[..., None]:
    name = reference.__name__
    operator = native.define(name + schema, lambda *arguments: None, native.Operator("dirichlet", used_by, slower))
    native.reference(name)(reference)
    return interruptible(operator, nanoseconds)


SUMS = "(Tensor(a!) out, Tensor prevalence, Tensor cells, Tensor? weights, Tensor keys, int start) -> ()"
LOGS = "(Tensor(a!) out, Tensor alpha, Tensor keys, int start) -> ()"
ITEMS = "(Tensor(a!) out, Tensor cells, Tensor key, int start) -> ()"
UNIFORMS = "(Tensor(a!) out, Tensor key, int draw) -> ()"
log_gamma = _define(reference.log_gamma, LOGS, lambda out, *_: 10 * out.numel(), "sample_dirichlet", 25)
dirichlet_sums = _define(
    reference.dirichlet_sums, SUMS, lambda out, _, cells, *__: 2 * out.shape[-1] * cells.numel(), "sample_sums", 40
)
item_sums = _define(
    reference.item_sums,
    ITEMS,
    lambda out, cells, *_: 2 * out.shape[-1] * cells.numel(),
    "sample_paired_matrices",
    15,
)
uniforms = _define(reference.uniforms, UNIFORMS, lambda out, *_: 3 * out.numel(), "RNG", 80)
