"""The Generalized Word Embedding Association Test."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from . import _sets
from ._call import check_groups
from .base_metric import BaseMetric
from .query import IndexedQuery, Query


@_sets.grouped("x", "a")
def gweat(
    x: Tensor, a: Tensor, *, x_mask: Tensor | None = None, a_mask: Tensor | None = None, per_group: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    # x: (..., G, X, D)  a: (..., G, A, D)  x_mask: (..., G, X)  a_mask: (..., G, A)  ->  (...) float64
    """Does each target group go with its own attribute group? sum_g (mean x_g - mu) . (mean a_g - nu).

    The means are of unit vectors, mu and nu the means of the group means. 0: no association; positive: as paired. For
    two groups it is half of the mean difference of WEAT. `per_group=True` also returns the terms (..., G). Masks,
    empty sets (of any group), zero vectors and errors as in `weat`; ValueError unless both sides have the same number
    of groups, at least two. Swinger et al. 2019, arXiv:1812.08769.
    """
    if x.shape[-3:-2] != a.shape[-3:-2] or x.shape[-3:-2] < (2,):
        got = f"{tuple(x.shape)} and {tuple(a.shape)}"
        raise ValueError(f"x, a: got shapes {got}, wanted equally many groups, at least 2: (..., G, W, D)")
    x, a = _sets.read("x", "a", x=(x, x_mask), a=(a, a_mask))
    x, a = x.unit().mean(), a.unit().mean()
    terms = _sets.dot(x - x.mean(-2, keepdim=True), a - a.mean(-2, keepdim=True))
    return (terms.sum(-1), terms) if per_group else terms.sum(-1)


class GWEAT(BaseMetric):
    """See `gweat`; `by_group` has the term of each target set."""

    metric_template = ("n", "n")
    metric_name = "Generalized WEAT"
    metric_short_name = "GWEAT"
    by_position = False
    result_keys = {"gweat": float, "by_group": dict, "p_value": float}

    def measure(self, x: Tensor, a: Tensor, **masks: Tensor) -> dict[str, Tensor]:
        score, terms = gweat(x, a, per_group=True, **masks)
        return {"gweat": score, "by_group": terms}

    def score_function(self) -> Callable[..., Tensor]:
        return gweat

    def check_query(self, query: Query) -> None:
        check_groups(query, self.metric_short_name, equal=True)

    def describe(self, values: dict[str, np.ndarray], index: IndexedQuery) -> dict[str, Any]:
        by_group = dict(zip(index.query.target_sets_names, map(np.float64, values["by_group"]), strict=True))
        return {"gweat": np.float64(values["gweat"]), "by_group": by_group, "p_value": np.float64(np.nan)}
