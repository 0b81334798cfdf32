"""Coverage of 95 % intervals and error rates in simulations, for groups of correlated items and at the edges.

With -s fractions are printed."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

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

    def run(i: int, **groups: Tensor) -> Estimate:
        metric = ConfusionPosterior(3, "f1@macro", replicates=500, interval="eti", seed=i)
        metric.update(*classified(generator), **groups)
        return metric.interval()["f1@macro"]

    assert 0.92 <= covered(partial(run, groups=groups), truth) <= 0.97
    assert covered(run, truth) < 0.85  # items are treated as independent


@pytest.fixture
def edges(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    import _edge_samples

    return _edge_samples


# Sets of each row, and limits of its columns: errors are at most .06, coverage at least .90, and three standard errors.
LIMITS = {
    "families": (200, {2: (0, 0.11)}),
    "differing": (20, {1: (1, 1)}),
    "margins": (400, {3: (0, 0.095), 4: (0, 0.095), 5: (0, 0.095)}),
    "strong": (200, {1: (0.88, 1), 2: (0.88, 1), 5: (0, 0.11)}),
    "alike": (200, {2: (0.88, 1), 3: (0, 0.13)}),
    "growing": (400, {2: (0, 0.083)}),
}


@pytest.mark.filterwarnings("ignore::tensormetrics.uncertainty.UncertaintyWarning")
@pytest.mark.parametrize("name", LIMITS)
def test_cells_at_the_edges_are_within_their_limits(name, edges):
    sets, limits = LIMITS[name]
    for row in getattr(edges, name)(sets):
        assert all(low <= float(row[column]) <= high for column, (low, high) in limits.items()), row


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("size", [(100, 3, 0.95), (100, 3, 0.99), (300, 10, 0.95), (300, 10, 0.99), (1000, 10, 0.95)])
def test_intervals_of_information_hold_the_truth_or_are_refused(size, kind, edges):
    held, refused = edges.clustering_shares(edges.CLUSTER_METRICS[kind], *size, 200)
    assert report(held) >= 0.88 and refused < 0.9
