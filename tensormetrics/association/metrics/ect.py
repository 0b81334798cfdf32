"""Embedding Coherence Test."""

from typing import Any

import torch
from torch import Tensor

from ..resampling.null_distribution import Alternative, NullDistribution
from ..resampling.target_permutation import target_null
from ..sets import marks, word_sets
from ..sets.word_sets import Vectors
from .base import BaseMetric


@marks.score(range=(-1, 1))
@torch.no_grad()
def ect(x: Vectors, y: Vectors, a: Vectors) -> Tensor:
    """Compute Spearman's correlation of cos(mean x, a) and cos(mean y, a) over the attribute words.

    Shapes: x: (..., X, D); y: (..., Y, D); a: (..., A, D), tensors or `WordSet`s -> (...) float64.

    In [-1, 1]; 1 means the same order of attribute words for both targets, no bias. Ties share their mean rank; cosines
    are rounded to multiples of 2^-40, so that ties count as ties. NaN for fewer than two attribute words, for constant
    cosines and for an empty set. No gradient. Zero vectors and errors as in `weat`. Dev & Phillips 2019,
    arXiv:1901.07656.

    >>> x, y = torch.tensor([[2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1.0, 2.0], [1.0, 3.0]])
    >>> a = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    >>> ect(x, y, a)
    tensor(-0.5000, dtype=torch.float64)
    """
    x, y, a = word_sets.read(x=x, y=y, a=a)
    means = word_sets.unit(word_sets.join(x.mean().unsqueeze(-2), y.mean().unsqueeze(-2), dim=-2))
    counts = None if a.counts is None else a.counts.unsqueeze(-2)
    ranks, counted = _centered_ranks(a.by_rows_of_others(a.unit().project_all(means).mT), counts)
    xx, xy, _, yy = word_sets.products(counted, ranks).flatten(-2).unbind(-1)
    return xy / (xx * yy).sqrt()


def _centered_ranks(values: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
    # values, counts: (..., A)  ->  (..., A) each: twice the centered ranks, and these times counts; NaN for NaN
    grid = (values * word_sets.GRID).round()
    order = (grid.unsqueeze(-1) - grid.unsqueeze(-2)).sign()  # 1 where the other is smaller, -1 where it is larger
    # Signs cancel over all pairs, so that the sums have the mean 0.
    ranks = (order if counts is None else order * counts.unsqueeze(-2)).sum(-1)
    ranks = ranks.masked_fill(values.isnan(), torch.nan)  # the sign of NaN is 0
    return ranks, ranks if counts is None else ranks * counts


class ECT(BaseMetric):
    """Embedding Coherence Test; see `ect`.

    As 1 is no bias, the alternative of its p-value is "less" by default: the probability under the null hypothesis of
    orders of the attribute words that differ at least as much.
    """

    is_differentiable = False
    metric_template = (2, 1)
    metric_name = "Embedding Coherence Test"
    metric_short_name = "ECT"
    function = staticmethod(ect)
    no_score = "fewer than two attribute words, or all are equally near to a target, or a vector is not finite"

    def __init__(self, *, alternative: Alternative = "less", **kwargs: Any) -> None:
        super().__init__(alternative=alternative, **kwargs)

    def measure(self, x: Vectors, y: Vectors, a: Vectors) -> dict[str, Tensor]:
        return {"ect": ect(x, y, a)}

    @torch.no_grad()
    def measure_shared(
        self, targets: word_sets.Words, attributes: word_sets.Words, t: Tensor, a: Tensor
    ) -> dict[str, Tensor]:
        counts = None if attributes.counts is None else attributes.counts.unsqueeze(-2)
        cosines = attributes.unit().project_all(word_sets.unit(targets.mean())).mT  # (A, T, W)
        cosines = attributes.by_rows_of_others(cosines)
        ranks, counted = _centered_ranks(cosines, counts)
        products = counted @ ranks.mT  # (A, T, T)
        (x, y), a = t.unbind(-1), a[:, 0]
        return {"ect": products[a, x, y] / (products[a, x, x] * products[a, y, y]).sqrt()}

    def null_distributions(self, x: Vectors, y: Vectors, a: Vectors) -> dict[str, NullDistribution]:
        return {"p_value": target_null(self.score_function(), x, y, a, self.seed)}
