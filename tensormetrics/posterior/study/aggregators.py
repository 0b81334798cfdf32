"""The methods that pool the experiments of a group, by name; see `pool` for what they compute."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.arguments import checks
from ...uncertainty.statistics import pooling
from ..metrics.registry import ExperimentAggregator
from ..sampling.arrays import without_subclass
from ..sampling.rng import RNG


class Pooling(NamedTuple):
    aliases: tuple[str, ...]
    full_name: str
    formula: Callable[..., Tensor]  # of samples, and where it draws of u and bounds; keywords are options


POOLINGS = (
    Pooling(("singleton", "identity"), "Singleton", pooling.pool_singleton),
    Pooling(
        ("fe", "fixed_effect", "fe_gaussian", "gaussian", "normal", "fe_normal"),
        "Fixed-effects Gaussian conflation",
        pooling.pool_fixed_effects,
    ),
    Pooling(("re", "random_effect", "re_gaussian", "re_normal"), "Random-effects model", pooling.pool_random_effects),
    Pooling(("beta", "beta_conflation"), "Beta conflation", pooling.pool_beta),
    Pooling(("gamma", "gamma_conflation"), "Gamma conflation", pooling.pool_gamma),
    Pooling(("hist", "histogram"), "Histogram conflation", pooling.pool_histogram),
    Pooling(("correlated", "cv", "nadeau_bengio"), "Correlated folds", pooling.pool_correlated),
)


class TableAggregator(ExperimentAggregator):
    """An aggregator that a row of `POOLINGS` describes; its options are attributes."""

    takes_classes = True
    row: Pooling

    def __init__(self, rng: RNG, **options: Any) -> None:
        if unknown := options.keys() - self.defaults.keys():
            valid = ", ".join(self.defaults) or "none"
            raise TypeError(f"{type(self).__name__} has no option {min(unknown)!r}; it has {valid}")
        super().__init__(rng=rng)
        vars(self).update({**self.defaults, **options})

    def _pooled(self, experiment_samples: Any, bounds: tuple[float, float]) -> Tensor:
        samples = without_subclass(experiment_samples)
        checks.floating("experiment_samples", samples)
        if samples.ndim not in (2, 3) or not samples.shape[1]:
            raise ValueError(f"experiment_samples: got shape {tuple(samples.shape)}, wanted (S, M) or (S, M, classes)")
        if not isinstance(bounds, tuple | list) or len(bounds) != 2 or not bounds[0] <= bounds[1]:
            raise ValueError(f"bounds: got {bounds!r:.60}, wanted (low, high) with low <= high")
        draws = () if self.row.formula is pooling.pool_singleton else (_uniform(self.rng, samples), bounds)
        return self.row.formula(samples, *draws, **{name: getattr(self, name) for name in self.defaults})


for _class in [TableAggregator.of_row(row, aggregate=TableAggregator._pooled) for row in POOLINGS]:
    globals()[_class.__name__] = _class  # where pickle finds it


def pool(
    samples: Sequence[Tensor],  # (S, C) or (S, 1) of each experiment
    aggregator: ExperimentAggregator,
    bounds: tuple[float, float],
    seed: int,
    name: str,
) -> Tensor:
    """Pool the samples of the experiments of a group; draws are addressed by seed, name and class."""
    together = torch.stack([values.mT for values in samples]).movedim(-1, 0)  # as they lie in memory
    root = RNG(seed, name, device=together.device)
    if aggregator.takes_classes:
        aggregator.rng = root
        return aggregator(together, bounds)
    columns = []
    for c, rng in enumerate(root.spawn(together.shape[-1])):
        aggregator.rng = rng
        columns.append(aggregator(together[..., c], bounds))
    return torch.stack(columns, -1)


def _uniform(rng: RNG, samples: Tensor) -> Tensor:
    # samples: (S, M)  ->  (S,); (S, M, classes)  ->  (S, classes), each class from a separate stream
    S, _, *classes = samples.shape
    if not classes:
        return rng.random(S).to(samples.device)
    streams = [stream.random(S) for stream in rng.spawn(*classes)]
    return torch.stack(streams, -1).to(samples.device) if streams else samples.new_empty(S, 0, dtype=torch.float64)
