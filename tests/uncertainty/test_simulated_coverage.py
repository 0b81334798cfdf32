"""Coverage of 95 % intervals in simulations, for one metric of each domain and for groups of correlated items.

Intervals cover the truth in .92 to .97 of all samples. With -s
the fractions are printed."""

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.uncertainty import Estimate

RUNS = 1000

pytestmark = pytest.mark.slow


def covered(run: Callable[[int], Estimate], truth: float) -> float:
    estimates = [run(i) for i in range(RUNS)]
    return report(sum(float(low) <= truth <= float(high) for _, low, high in estimates) / RUNS)


def report(fraction: float) -> float:
    print(f"{os.environ['PYTEST_CURRENT_TEST'].split('::')[1]}: {fraction:.3f}")
    return fraction


def correlated(groups: int, size: int, generator: torch.Generator) -> Tensor:
    # ->  (groups * size,) standard normal, correlation .3 within a group
    shared, individual = torch.randn(groups, 1, generator=generator), torch.randn(groups, size, generator=generator)
    return (0.3**0.5 * shared + 0.7**0.5 * individual).flatten()


def classified(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    target = torch.randint(3, (600,), generator=generator)
    return torch.where(correlated(60, 10, generator) < 1.0, target, (target + 1) % 3), target


def test_macro_f1_interval_with_groups_covers_the_truth(generator):
    """The truth is .8413 for every class: errors go to the next class, and all classes are equivalent."""
    groups = torch.arange(60).repeat_interleave(10)
    truth = float(torch.special.ndtr(torch.tensor(1.0, dtype=torch.float64)))

    def run(grouped: bool) -> Callable[[int], Estimate]:
        def interval(i: int) -> Estimate:
            metric = ConfusionPosterior(3, "f1@macro", replicates=500, interval="eti", seed=i)
            metric.update(*classified(generator), **({"groups": groups} if grouped else {}))
            return metric.interval()["f1@macro"]

        return interval

    assert 0.92 <= covered(run(True), truth) <= 0.97
    assert covered(run(False), truth) < 0.85  # items are treated as independent
