"""The operators `tensormetrics::log_gamma`, `::dirichlet_sums`, `::item_sums` and `::uniforms`, which fill `out`.

Arguments are as in `_reference`, contiguous and on one device: `out` float32 or float64, in the last two float64 alone,
concentrations and weights float64, finite and >= 0, keys int64. Samples are the last axis, neighbours in memory as in a
vector register.
"""

from collections.abc import Callable
from typing import Any

from .. import _native
from . import _reference


def _define(reference: Callable[..., None], schema: str, serves: str, slower: float) -> Any:
    name = reference.__name__
    operator = _native.define(name + schema, lambda *arguments: None, _native.Operator("dirichlet", serves, slower))
    _native.reference(name)(reference)
    return operator


SUMS = "(Tensor(a!) out, Tensor prevalence, Tensor cells, Tensor? weights, Tensor keys, int start) -> ()"
log_gamma = _define(
    _reference.log_gamma, "(Tensor(a!) out, Tensor alpha, Tensor keys, int start) -> ()", "sample_dirichlet", 25
)
dirichlet_sums = _define(_reference.dirichlet_sums, SUMS, "sample_sums", 40)
item_sums = _define(
    _reference.item_sums, "(Tensor(a!) out, Tensor cells, Tensor key, int start) -> ()", "sample_paired_matrices", 15
)
uniforms = _define(_reference.uniforms, "(Tensor(a!) out, Tensor key, int draw) -> ()", "RNG", 80)
