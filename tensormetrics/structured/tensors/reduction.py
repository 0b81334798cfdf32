"""From the counts of documents to scores: sums of counts, or means of scores, and how sure they are."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import _checks
from ..._metric import Metric
from .constraints import Constraint
from .normalizers import Normalizer, normalize, parse_normalizers
from .overlap import Overlap
from .policy import Policy


class CountMetric(Metric):
    """Base of the metrics that count something in each document and read named scores off the counts.

    `average="micro"` scores the sums of the counts; "macro" takes the mean of the documents' scores, leaving out NaN.
    Without a document every score is NaN. `bootstrap=R` adds `<name>-low` and `<name>-high`, the `confidence` interval
    of R replicates, in each of which a document counts Poisson(1) times (N. C. Oza, S. Russell, 2001; online bagging):
    nothing but sums is kept. Give each rank a `seed` of its own; `reset` does not rewind the draws.
    """

    def __init__(
        self,
        counts: int,  # K
        average: str = "micro",
        bootstrap: int = 0,
        confidence: float = 0.95,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _checks.one_of("average", average, ("micro", "macro"))
        if not 0 < confidence < 1:
            raise ValueError(f"confidence: got {confidence!r}, wanted a number between 0 and 1")
        self.average, self.confidence, self.n_counts = average, confidence, counts
        self.replicates = _checks.integer_at_least("bootstrap", bootstrap, 0)
        self._random = np.random.default_rng(_checks.integer_at_least("seed", seed, 0))
        width = counts + 1 if average == "micro" else 2 * len(self.read_scores(torch.zeros(counts)))
        # Row 0 is the data, the others are replicates.
        self.add_state("sums", torch.zeros(1 + self.replicates, width, dtype=torch.float64), "sum")

    @abstractmethod
    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., K)  ->  name: (...)
        """The scores that counts of one document, or of many together, stand for."""

    def add_documents(self, counts: Tensor) -> None:
        # counts: (..., K)
        """Add documents to the running sums."""
        counts = torch.atleast_2d(counts.detach().double()).flatten(0, -2)
        if self.average == "micro":
            table = torch.cat([counts, torch.ones_like(counts[:, :1])], -1)
        else:
            scores = torch.stack(list(self.read_scores(counts).values()), -1)
            table = torch.cat([scores.masked_fill(scores.isnan(), 0), (~scores.isnan()).double()], -1)
        sums = table.sum(0, keepdim=True)
        if self.replicates:
            drawn = torch.from_numpy(self._random.poisson(1.0, (len(table), self.replicates)))
            sums = torch.cat([sums, drawn.to(table.device, table.dtype).mT @ table])
        self.sums = self.sums + sums

    def add_update(self, counts: Tensor) -> None:
        # counts: (..., K)
        """Add documents as an `update` does, for what reads objects: once, and not at all where it fails."""
        self._wrap_update(self.add_documents)(counts)

    def compute(self) -> dict[str, Tensor]:
        """name -> () float64."""
        if self.average == "micro":
            empty = self.sums[:, -1] == 0
            scores = {name: s.masked_fill(empty, torch.nan) for name, s in self.read_scores(self.sums[:, :-1]).items()}
        else:
            totals, numbers = self.sums.tensor_split(2, -1)
            names = self.read_scores(self.sums.new_zeros(self.n_counts)).keys()
            scores = dict(zip(names, (totals / numbers).unbind(-1), strict=True))
        result = {name: score[0] for name, score in scores.items()}
        tail = (1 - self.confidence) / 2
        for name, score in scores.items() if self.replicates else ():
            for end, quantile in (("low", tail), ("high", 1 - tail)):
                result[f"{name}-{end}"] = score[1:].nanquantile(quantile)
        return result


class OverlapMetric(CountMetric):
    """Base of the metrics over overlaps: counts are cross, pred and ref, the scores are normalizers."""

    def __init__(
        self,
        constraint: str | Constraint = "<->",
        scores: Sequence[str | Normalizer] = ("precision", "recall", "f1"),
        average: str = "micro",
        policy: str | Policy = "conventional",
        *,
        empty: str | None = None,
        zero_division: float | str | None = None,
        duplicates: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.constraint = Constraint.parse(constraint)
        self.scores = {score.name or "overlap": score for score in parse_normalizers("scores", scores)}
        self.policy = Policy.parse(policy, empty=empty, zero_division=zero_division, duplicates=duplicates)
        super().__init__(3, average, **kwargs)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 3)  ->  name: (...)
        cross, pred, ref = counts.unbind(-1)
        zero_division = self.policy.zero_division
        return {name: normalize(cross, pred, ref, score, zero_division) for name, score in self.scores.items()}

    def add_overlap(self, overlap: Overlap, n_pred: Tensor, n_ref: Tensor) -> None:
        # overlap, n_pred, n_ref: (...)
        """Add the overlaps of documents whose collections have these lengths."""
        self.add_documents(torch.stack([o.double() for o in self.policy.count_empty(*overlap, n_pred, n_ref)], -1))
