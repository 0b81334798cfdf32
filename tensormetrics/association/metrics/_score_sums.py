"""Running sums of scores, of which those that are not finite are left out and counted."""

from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.metric.sum_metric import SumMetric
from ...core.native import native
from ...core.numbers.exact_sums import GRIDS, parts, total
from ...core.resampling.weights import identity

# scores: (N,) float64  state: (5,) float64, the exact sums of the parts of finite scores, and the numbers of finite
# scores and of others
SCORE_SUMS = native.define(
    "score_sums(Tensor scores, Tensor state) -> Tensor",
    lambda scores, state: torch.empty_like(state),
    native.Operator("subsets", "association metrics", 4),
)


@native.reference("score_sums")
def _score_sums(scores: Tensor, state: Tensor) -> Tensor:
    is_finite = scores.isfinite()
    sums = [part.sum() for part in parts(scores.where(is_finite, 0))]
    return state + torch.stack([*sums, is_finite.sum(), (~is_finite).sum()])


@native.on_gpu("score_sums", "score sums")
def _launch(scores: Tensor, state: Tensor) -> Tensor:
    from .kernels import score_sums

    return score_sums(scores, state)


def masked_mean(scores: Tensor, mask: Tensor | None) -> Tensor:
    # scores: (..., N)  mask: (..., N) or (N,) bool  ->  (...), NaN for none
    if mask is None:
        return scores.mean(-1)
    checks.tensor("mask", mask)
    if mask.dtype != torch.bool:
        raise TypeError(f"mask: got {mask.dtype}, wanted torch.bool; write mask > 0")
    checks.shape("mask", mask, *(scores.shape if mask.ndim != 1 else scores.shape[-1:]))
    checks.same_device(scores=scores, mask=mask)
    return scores.where(mask, 0).sum(-1) / mask.sum(-1)


class MeanScore(SumMetric):
    """Mean of all finite scores of all updates; `finite` and `not_finite` count the scores."""

    score_sums: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_kept(2)
        self.add_state("score_sums", torch.zeros(len(GRIDS) + 2, dtype=torch.float64), "sum")

    def add_scores(self, scores: Tensor, ids: Any = None, groups: Any = None) -> None:
        # scores: (...)
        """Add scores to the state, and to the weighted sums of replicates."""
        scores = scores.detach().double().flatten()
        resampling_units = identity(len(scores), scores.device, ids, groups)
        self.score_sums = SCORE_SUMS(scores, self.score_sums)
        self.keep(scores, **resampling_units)

    def item_rows(self, entries: Tensor) -> Tensor:
        # entries: (n,)  ->  (n, 2)
        is_finite = entries.isfinite()
        return torch.stack([entries.where(is_finite, 0), is_finite.double()], 1)

    @property
    def finite(self) -> Tensor:
        # ->  () int64
        return self.score_sums[-2].long()

    @property
    def not_finite(self) -> Tensor:
        # ->  () int64
        return self.score_sums[-1].long()

    def compute(self) -> Tensor:
        # ->  () float64, NaN if no score was finite
        return total(self.score_sums[: len(GRIDS)]) / self.score_sums[-2]

    def all_sums(self) -> Tensor:
        # ->  (2,): sum and number of the scores
        return torch.stack([total(self.score_sums[: len(GRIDS)]), self.score_sums[-2]])

    def read_sums(self, sums: Tensor) -> Tensor:
        """Return the mean.

        Shapes: sums: (..., 2) -> (...).
        """
        return sums[..., 0] / sums[..., 1]
