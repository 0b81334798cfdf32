"""Options of a ranking."""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ...core.arguments import checks
from ..inputs import budget
from ..relevance import Comparison
from ..search import operators
from ..search.distance import DISTANCES, Distance, DistanceName
from ..search.fp16_search import Float16Search

Ties = Literal["index", "optimistic", "pessimistic"]
TIES: tuple[Ties, ...] = get_args(Ties)


class RankingOptions(NamedTuple):
    """Options of a ranking: relevance, order of the references and depth; see `positive_ranks`."""

    label_comparison_fn: Comparison | None = None
    depth: int | None = None
    ties: Ties = "index"
    distance: DistanceName = "l2"
    exact: bool = True
    memory_budget: int | None = None

    def checked(self) -> "RankingOptions":
        checks.check_choice("ties", self.ties, TIES)
        checks.check_choice("distance", self.distance, DISTANCES)
        return self if self.depth is None else self._replace(depth=checks.check_int("depth", self.depth, 1))

    def is_shallow(self, reference: Tensor, is_ignoring: bool = False) -> bool:
        # reference: (R, D)
        """Return whether searching neighbors is faster than counting, which gives the same integers."""
        if self.depth is None or self.ties != "index":
            return False
        kernels = None if is_ignoring else operators.kernels(reference, "search")
        is_fast = kernels and Float16Search.is_faster(min(self.depth, len(reference)), len(reference), kernels)
        return bool(is_fast) or self.ranks_few(len(reference))

    def ranks_few(self, references: int) -> bool:
        """Return whether ranks are so low that searching neighbors is faster than counting on any device."""
        return self.depth is not None and self.ties == "index" and self.depth <= max(64, references // 32)

    @property
    def order(self) -> Distance:
        """Distance that `distance` names."""
        return DISTANCES[self.distance]

    def memory(self, device: torch.device) -> int:
        """Return the number of bytes that temporaries may take."""
        return budget(self.memory_budget, device)
