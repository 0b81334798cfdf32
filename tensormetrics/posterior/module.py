"""A torchmetrics metric that says how sure a score is."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _checks
from .._metric import Metric
from .dirichlet import dirichlet_prior
from .scores import Score
from .summary import Estimate, check_probability, estimate
from .sums import ConfusionSums, sample_sums, sums_from_matrices
from .syntax import resolve


class ConfusionPosterior(Metric):
    """Credible intervals of classification metrics, from the posterior of the confusion matrix.

    `metrics` are strings such as "acc", "tpr" (one value per class) or "f1@macro"; `scores.SCORES` has their formulas,
    ranges and directions. `compute()` gives an `Estimate` for each, float64, () or (C,): the median of `num_samples`
    posterior samples and the ends of their highest density interval of mass `ci_probability`. Priors as in
    `dirichlet_prior`. Draws are addressed by `seed` and `name`: equal counts give equal answers, on one rank or many.
    Targets equal to `ignore_index` are left out.

        metric = ConfusionPosterior(10, ["acc", "f1@macro"])
        metric.update(logits, target)
        metric.compute()["acc"].low

    Reference: doi:10.7717/peerj-cs.398.
    """

    def __init__(
        self,
        num_classes: int,
        metrics: str | Sequence[str] = ("acc",),
        *,
        ci_probability: float = 0.95,
        num_samples: int = 10_000,
        prevalence_prior: Any = "perks",
        confusion_prior: Any = "perks",
        seed: int = 0,
        name: str = "posterior",
        ignore_index: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        C = self.num_classes = _checks.integer_at_least("num_classes", num_classes, 2)
        self.metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        for metric in self.metrics:
            resolve(metric)
        check_probability("ci_probability", ci_probability)
        self.ci_probability = ci_probability
        self.num_samples = _checks.integer_at_least("num_samples", num_samples, 1)
        self.prevalence_prior = dirichlet_prior(prevalence_prior, (C,), argument="prevalence_prior")
        self.confusion_prior = dirichlet_prior(confusion_prior, (C, C), argument="confusion_prior")
        self.seed = _checks.integer_at_least("seed", seed, 0)
        self.name = name
        self.ignore_index = ignore_index
        self.add_state("counts", torch.zeros(C, C, dtype=torch.int64), "sum")
        self.add_state("spilled", torch.zeros((), dtype=torch.int64), "sum")  # labels that are no class

    def update(self, preds: Tensor, target: Tensor) -> None:
        # preds: (...) labels or (..., C) scores, of which the largest counts  target: (...) labels
        """Count a batch. Labels outside 0..C-1 or nan scores: ValueError, on CUDA raised by `compute` instead."""
        C = self.num_classes
        _checks.integral("target", target)
        _checks.same_device(preds=preds, target=target, state=self.counts)
        scored = preds.is_floating_point()
        if not scored:
            _checks.integral("preds", preds)
        if preds.shape != ((*target.shape, C) if scored else target.shape):
            raise ValueError(
                f"preds: got {preds.dtype} of shape {tuple(preds.shape)} with a target of shape {tuple(target.shape)}, "
                f"wanted integer labels {tuple(target.shape)} or floating scores {(*target.shape, C)}"
            )
        if scored:
            best, preds = preds.max(-1)
            preds = preds.masked_fill(best.isnan(), -1)
        preds, target = preds.long(), target.long()  # a comparison in uint8 would wrap C and ignore_index
        inside = (preds >= 0) & (preds < C) & (target >= 0) & (target < C)
        cell = torch.where(inside, target * C + preds, C * C)
        if self.ignore_index is not None:
            cell = cell.masked_fill(target == self.ignore_index, C * C + 1)
        cell = cell.flatten()
        counted = cell.new_zeros(C * C + 2).scatter_add_(0, cell, torch.ones_like(cell))
        if cell.device.type == "cpu" and counted[C * C]:
            self._refuse(preds.flatten()[cell == C * C], target.flatten()[cell == C * C], scored)
        self.counts = self.counts + counted[: C * C].view(C, C)
        self.spilled = self.spilled + counted[C * C]

    def compute(self) -> dict[str, Estimate]:
        if self.spilled:
            raise ValueError(
                f"preds, target: got {self.spilled} items with a label outside 0..{self.num_classes - 1} or with nan "
                "scores; reset() and leave them out, or mark them by ignore_index"
            )
        scores = {metric: resolve(metric) for metric in self.metrics}
        sums = sample_sums(
            self.counts,
            self.num_samples,
            prevalence_prior=self.prevalence_prior,
            confusion_prior=self.confusion_prior,
            seed=self.seed,
            names=[self.name],
            need="margins" if any(score.need == "margins" for score in scores.values()) else "diag",
        )
        return {metric: estimate(_values(score, sums)[:, 0], self.ci_probability) for metric, score in scores.items()}

    def batch_value(self) -> dict[str, Tensor]:
        """What `forward` answers with: point values, without sampling."""
        sums = sums_from_matrices(self.counts)
        return {metric: _values(resolve(metric), sums) for metric in self.metrics}

    def _refuse(self, preds: Tensor, target: Tensor, scored: bool) -> None:
        last = self.num_classes - 1
        for name, labels in ("target", target), ("preds", preds):
            if labels.min() < 0 or labels.max() > last:
                got = "nan scores" if scored and name == "preds" else f"labels from {labels.min()} to {labels.max()}"
                raise ValueError(f"{name}: got {got}, wanted 0 to {last}")


def _values(score: Score, sums: ConfusionSums) -> Tensor:
    # (..., C) -> (..., C) if the score has one value per class, else (...)
    values = score.formula(sums)
    return values if score.per_class else values.squeeze(-1)
