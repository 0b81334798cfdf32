"""Coverage of 95 % intervals in simulations, for one metric of each domain and for groups of correlated items.

Intervals cover the truth in .92 to .97 of all samples, and comparisons of equal models are rarely significant. With -s
the fractions are printed."""

import os
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tensormetrics.association import bootstrap_interval, mac
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AveragePrecisionAtR
from tensormetrics.structured import CorefScores, MultisetMatch
from tensormetrics.uncertainty import Estimate, compare

RUNS = 1000

pytestmark = pytest.mark.slow


def covered(run: Callable[[int], Estimate], truth: float) -> float:
    estimates = [run(i) for i in range(RUNS)]
    return report(sum(float(low) <= truth <= float(high) for _, low, high in estimates) / RUNS)


def report(fraction: float) -> float:
    print(f"{os.environ['PYTEST_CURRENT_TEST'].split('::')[1]}: {fraction:.3f}")
    return fraction


def test_map_at_r_interval_covers_the_truth_of_a_fixed_gallery(generator):
    gallery_labels = torch.arange(20).repeat_interleave(10)
    gallery = torch.eye(20)[gallery_labels] + 0.5 * torch.randn(200, 20, generator=generator)
    labels = torch.randint(20, (8000,), generator=generator)
    queries = torch.eye(20)[labels] + 0.5 * torch.randn(8000, 20, generator=generator)
    population = AveragePrecisionAtR()
    population.update(queries, labels, gallery, gallery_labels)

    def run(i: int) -> Estimate:
        indices = torch.randint(8000, (150,), generator=generator)
        metric = AveragePrecisionAtR()
        metric.update(queries[indices], labels[indices], gallery, gallery_labels)
        return metric.interval(replicates=500, seed=i)

    assert 0.92 <= covered(run, float(population.compute())) <= 0.97


def test_conll_f1_interval_over_documents_covers_the_truth(generator):
    ref = torch.randint(0, 5, (4000, 12), generator=generator)
    noise = torch.randint(0, 5, (4000, 12), generator=generator)
    accuracy = torch.rand(4000, 1, generator=generator)  # some documents are harder than others
    pred = torch.where(torch.rand(4000, 12, generator=generator) < accuracy, ref, noise)
    population = CorefScores(("conll",))
    population.update(pred, ref)

    def run(i: int) -> Estimate:
        indices = torch.randint(4000, (150,), generator=generator)
        metric = CorefScores(("conll",), replicates=500, seed=i)
        metric.update(pred[indices], ref[indices])
        return metric.interval()["conll-f1"]

    assert 0.92 <= covered(run, float(population.compute()["conll-f1"])) <= 0.97


def test_mac_interval_covers_the_truth(generator):
    vectors = torch.randn(2, 20000, 8, generator=generator, dtype=torch.float64) + torch.tensor([1.0] + [0.0] * 7)
    truth = mac(vectors[0], vectors[1:])
    targets, attributes = torch.randint(20000, (2, RUNS, 80), generator=generator)
    _, low, high = bootstrap_interval(mac, vectors[0][targets], vectors[1][attributes][:, None], replicates=400)
    assert 0.92 <= report(float(((low <= truth) & (truth <= high)).double().mean())) <= 0.97


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


def test_multiset_f1_interval_with_groups_covers_the_truth(generator):
    groups = torch.arange(60).repeat_interleave(10)

    def run(i: int) -> Estimate:
        right = (correlated(60, 10, generator) < 0).long()[:, None]
        metric = MultisetMatch(replicates=500, seed=i)
        metric.update(right, torch.ones_like(right), groups=groups)
        return metric.interval()["f1"]

    assert 0.92 <= covered(run, 0.5) <= 0.97


def test_p_values_of_equal_models_are_small_at_the_nominal_rate(generator):
    """Two equally good models: 5 % of the comparisons have a p-value of at most .05, with and without groups."""
    for size in (1, 10):
        groups, rejected = torch.arange(300) // size, 0
        for i in range(400):
            a, b = (MultisetMatch(replicates=199, seed=i) for _ in range(2))
            for metric in (a, b):
                right = (correlated(300 // size, size, generator) < 0).long()[:, None]
                metric.update(right, torch.ones_like(right), groups=groups)
            rejected += float(compare(a, b)["f1"].p_value) <= 0.05
        assert abs(report(rejected / 400) - 0.05) < 0.04
