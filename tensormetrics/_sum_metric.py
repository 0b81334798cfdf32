"""The base of metrics whose value is a function of sums over items."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from . import _checks
from ._metric import Metric, Options
from .uncertainty.engine.resampling import Resampled
from .uncertainty.engine.weights import GRIDS, check_draws, fingerprint, identity, joined, weighted_sums


class SumMetric(Metric):
    """Keeps sums over items, and with `replicates=R` also R weighted ones, for `interval` and `compare`.

    What is kept is exact, and so the same in any order and split of the items; `ids` and `groups`: see `Uncertain`.
    """

    sums: Tensor
    weighted: Tensor
    items: Tensor

    def __init__(self, *, replicates: int = 0, seed: int = 0, **kwargs: Unpack[Options]) -> None:
        super().__init__(**kwargs)
        self.replicates = _checks.integer_at_least("replicates", replicates, 0)
        self.seed: int | None = _checks.integer_at_least("seed", seed, 0)
        if self.replicates and type(self).no_interval is not Metric.no_interval:
            raise ValueError(f"replicates: got {replicates}, but there is no interval: {self.no_interval}")

    def add_sums(self, width: int) -> None:
        """Declare the states of rows (K,), K = `width`."""
        self.add_state("sums", torch.zeros(width, dtype=torch.float64), "sum")
        self.add_weighted(width)

    def add_weighted(self, width: int) -> None:
        """Declare those of the replicates alone."""
        if self.replicates:
            shape = 2, len(GRIDS), self.replicates, width
            self.add_state("weighted", torch.zeros(shape, dtype=torch.float64), "sum")
            self.add_state("items", torch.zeros((), dtype=torch.int64), "sum")

    def add_items(self, rows: Tensor, ids: Any = None, groups: Any = None) -> None:
        # rows: (B, K) float64
        """Add a row for each item to the sums."""
        given = identity(len(rows), rows.device, ids, groups)
        self.sums = self.sums + rows.sum(0)
        self.weigh(rows, **given)

    def weigh(self, rows: Tensor, ids: Tensor | None = None, groups: Tensor | None = None) -> None:
        # rows: (B, K) float64  ids, groups: (B,) int64
        """Add the weighted rows of items to the sums of each replicate."""
        if self.replicates:
            assert self.seed is not None  # who has replicates has a seed
            count, device = len(rows), rows.device
            number = ids if groups is None else groups
            if number is None:
                number = torch.arange(self._fed, self._fed + count, device=device) + (_rank() << 40)
            self._fed += count
            added = weighted_sums(rows, number, self.replicates, self.seed, halves=True)
            self.weighted, self.items = self.weighted + added[..., 0, :], self.items + fingerprint(number)

    @abstractmethod
    def read_sums(self, sums: Tensor) -> Any:
        # sums: (..., K)  ->  (...), or name: (...)
        """The value, or values, that sums of rows stand for."""

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        own = {"replicates": (replicates, self.replicates), "seed": (seed, self.seed)}
        kind = type(self).__name__
        if type(self).no_interval is not Metric.no_interval:
            raise NotImplementedError(f"{kind}: {self.no_interval}")
        if not self.replicates:
            wanted = check_draws(replicates, seed)[0]
            raise ValueError(f"replicates: {kind} keeps sums; write {kind}(..., replicates={wanted}) and update again")
        for name, (asked, kept) in own.items():
            if asked not in (None, kept):
                raise ValueError(f"{name}: got {asked}, but this {kind} was made with {name}={kept}; leave it out")
        weighted, half = map(joined, self.weighted)
        return Resampled(self.all_sums(), weighted, half, self.read_sums, self.items)

    def all_sums(self) -> Tensor:
        # ->  (K,)
        """Those of the data."""
        return self.sums


def _rank() -> int:
    return (
        torch.distributed.get_rank() if torch.distributed.is_available() and torch.distributed.is_initialized() else 0
    )
