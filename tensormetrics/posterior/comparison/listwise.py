"""Which experiment comes first, second, ...: the posterior of ranks."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.numbers.exact_sums import prefix_sums, ratio, scatter_add
from ...core.numbers.quantiles import unsigned_nan


class ListwiseComparisonResult(NamedTuple):
    """Experiments ordered by their mean reciprocal rank, the likely best first."""

    experiment_names: list[str]
    metric: str
    p_rank_given_experiment: Tensor  # (E, E), rows are experiments and sum to 1
    mean_reciprocal_rank: Tensor  # (E,)
    paired: bool = False  # were samples of some experiments drawn for the same items?

    @property
    def p_experiment_given_rank(self) -> Tensor:  # (E, E), rows are ranks
        return self.p_rank_given_experiment.T


def listwise_compare(
    samples: Mapping[str, Tensor],
    metric: str = "metric",
    higher_is_better: bool | None = None,
    paired: bool = False,
) -> ListwiseComparisonResult:
    """Rank experiments in each sample, 1 being the best; None and True put larger values first.

    Shapes: samples: (S,) each.

    Tied experiments share their ranks equally, and nan ranks last.

    >>> from tensormetrics.posterior.comparison.listwise import listwise_compare
    >>> generator = torch.Generator().manual_seed(0)
    >>> a, b = torch.tensor([0.9, 0.93])[:, None] + 0.02 * torch.randn(2, 2000, generator=generator)
    >>> result = listwise_compare({"a": a, "b": b})
    >>> result.experiment_names, round(float(result.p_rank_given_experiment[0, 0]), 2)  # the first is first
    (['b', 'a'], 0.85)
    """
    if not isinstance(samples, Mapping):
        raise TypeError(f"samples: got a {type(samples).__name__}, wanted a dict of names and their samples (S,)")
    if not samples:
        empty = torch.zeros(0, 0, dtype=torch.float64, device="cpu")
        return ListwiseComparisonResult([], metric, empty, empty.flatten())
    for name, values in samples.items():
        checks.shape(f"samples[{name!r}]", values, "S")
    checks.check_consistent_length(**{str(name): values for name, values in samples.items()})
    probabilities = rank_probabilities(torch.stack(list(samples.values()), -1), higher_is_better)
    reciprocal = probabilities @ (
        1 / torch.arange(1, len(probabilities) + 1, dtype=probabilities.dtype, device=probabilities.device)
    )
    order = reciprocal.argsort(descending=True, stable=True)
    names = list(samples)
    ordered = [names[e] for e in order.tolist()]
    return ListwiseComparisonResult(ordered, metric, probabilities[order], reciprocal[order], paired)


def rank_probabilities(values: Tensor, higher_is_better: bool | None = True) -> Tensor:
    # values: (S, E)  ->  (E, E) float64: how often experiment e has rank r
    S, E = values.shape
    key = values if higher_is_better is False else -values
    ordered, experiment = unsigned_nan(key).sort(dim=-1, stable=True)  # the best first, nan last
    same = (ordered[:, 1:] == ordered[:, :-1]) | (ordered[:, 1:].isnan() & ordered[:, :-1].isnan())
    position = torch.arange(E, device=values.device).expand(S, E)
    edge = torch.nn.functional.pad(~same, (1, 0), value=True)
    first = torch.where(edge, position, 0).cummax(-1).values  # of those tied with this one
    edge = torch.nn.functional.pad(~same, (0, 1), value=True)
    last = torch.where(edge, position, E).flip(-1).cummin(-1).values.flip(-1)
    weight = 1 / (last - first + 1).double()
    # The weight belongs to ranks first..last: it is added at first, subtracted at last + 1, then accumulated.
    change = weight.new_zeros(E * (E + 1))
    row = experiment * (E + 1)
    scatter_add(change, (row + first).flatten(), weight.flatten())
    scatter_add(change, (row + last + 1).flatten(), -weight.flatten())
    return ratio(prefix_sums(change.view(E, E + 1))[:, :E], S).clamp(min=0)


@takes_arrays
def expected_reward(p_rank: Tensor, rewards: Tensor | list[float] | float | None = None) -> Tensor:
    """Return the mean reward if rank r earns rewards[r - 1], and further ranks 0; None: 1 for the first rank.

    Shapes: p_rank: (..., E, E), rows are experiments -> (..., E).

    >>> expected_reward(torch.tensor([[0.75, 0.25], [0.25, 0.75]]), rewards=[10.0, 4.0])
    tensor([8.5000, 5.5000])
    """
    checks.floating("p_rank", p_rank)
    checks.shape("p_rank", p_rank, "...", "E", *p_rank.shape[-1:])
    checks.shape("p_rank", p_rank, "...", *p_rank.shape[-1:] * 2)
    E = p_rank.shape[-1]
    rewards = torch.as_tensor([1.0] if rewards is None else rewards, dtype=p_rank.dtype, device=p_rank.device)
    if rewards.ndim > 1 or rewards.numel() > E:
        raise ValueError(f"rewards: got shape {tuple(rewards.shape)}, wanted at most one number for each of {E} ranks")
    of_rank = torch.nn.functional.pad(rewards.reshape(-1), (0, E - rewards.numel()))
    return (p_rank.double() @ of_rank.double()).to(p_rank.dtype)  # float64, which autocast leaves alone
