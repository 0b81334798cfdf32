"""Options of a ranking."""

from typing import Literal, NamedTuple, get_args

import torch

from ...core.arguments import checks
from ..inputs import budget
from ..relevance import Comparison
from ..search.distance import DISTANCES, Distance, DistanceName

Ties = Literal["index", "optimistic", "pessimistic"]
TIES: tuple[Ties, ...] = get_args(Ties)


class Ranking(NamedTuple):
    """Options of a ranking: relevance, order of the references and depth; see `positive_ranks`."""

    label_comparison_fn: Comparison | None = None
    depth: int | None = None
    ties: Ties = "index"
    distance: DistanceName = "l2"
    exact: bool = True
    memory_budget: int | None = None

    def checked(self) -> "Ranking":
        checks.check_choice("ties", self.ties, TIES)
        checks.check_choice("distance", self.distance, DISTANCES)
        return self if self.depth is None else self._replace(depth=checks.check_int("depth", self.depth, 1))

    def is_shallow(self, references: int) -> bool:
        """Return whether searching neighbors is faster than counting, which gives the same integers."""
        return self.depth is not None and self.depth <= max(64, references // 32) and self.ties == "index"

    @property
    def order(self) -> Distance:
        """Distance that `distance` names."""
        return DISTANCES[self.distance]

    def memory(self, device: torch.device) -> int:
        """Return the number of bytes that temporaries may take."""
        return budget(self.memory_budget, device)
