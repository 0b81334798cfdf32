"""Corrections of p-values for multiple testing."""

import math
import re

import numpy as np
import pytest
import scipy.stats
import torch

from tensormetrics.association import ECT, GWEAT, RIPA, RND, WEAT, Query, WordEmbeddingModel, run_queries
from tensormetrics.core.resampling.corrections import StepDown
from tensormetrics.uncertainty import correct_p_values


def test_correct_p_values_equals_values_by_hand(device):
    p = torch.tensor([[0.01, 0.04, 0.03], [0.5, math.nan, 0.02]], device=device)
    holm = [[0.03, 0.06, 0.06], [0.5, math.nan, 0.04]]
    bh = [[0.03, 0.04, 0.04], [0.5, math.nan, 0.04]]
    for correction, expected in ("holm", holm), ("bh", bh):
        np.testing.assert_allclose(correct_p_values(p, correction).cpu(), expected, rtol=1e-6)


def test_correct_p_values_bh_agrees_with_scipy(generator, device):
    p = torch.rand(50, 20, generator=generator, dtype=torch.float64) ** 3
    expected = scipy.stats.false_discovery_control(p.numpy(), axis=1)
    np.testing.assert_allclose(correct_p_values(p.to(device), "bh").cpu(), expected, rtol=1e-12)


def p_values_of(metric, queries, models, **options):
    table = run_queries(metric, queries, models, value="p_value", **options)
    return torch.tensor(table.cells, dtype=torch.float64)


def model_of(vectors, name="m"):
    return WordEmbeddingModel.from_tensor(vectors, [f"w{i}" for i in range(len(vectors))], name)


def words(start, stop):
    return [f"w{i}" for i in range(start, stop)]


def test_run_queries_correction_treats_queries_of_a_model_as_one_family(generator):
    models = [model_of(torch.randn(24, 5, generator=generator), name) for name in "ab"]
    queries = [
        Query([words(i, i + 4), words(i + 4, i + 8)], [words(16, 20), words(20, 24)], [f"t{i}", f"s{i}"])
        for i in range(0, 9, 4)
    ]
    uncorrected = p_values_of(WEAT(p_value=True), queries, models)
    corrected = p_values_of(WEAT(p_value=True), queries, models, correction="holm")
    assert torch.equal(corrected, correct_p_values(uncorrected)) and not torch.equal(uncorrected, corrected)
    with pytest.raises(ValueError, match="^correction: got 'x', wanted one of 'holm', 'bh'$"):
        correct_p_values(uncorrected, "x")


def step_down(observed: np.ndarray, null_statistics: np.ndarray) -> np.ndarray:
    """Compute step-down p-values as Westfall & Young 1993, Algorithm 2.8, test by test and draw by draw."""
    order = sorted((t for t in range(len(observed)) if not np.isnan(observed[t])), key=lambda t: -observed[t])
    p_values, running_max = np.full(len(observed), np.nan), 0.0
    for rank, test in enumerate(order):
        largest = [max(row[t] for t in order[rank:]) for row in null_statistics]
        running_max = max(
            running_max, (1 + sum(statistic >= observed[test] for statistic in largest)) / (1 + len(null_statistics))
        )
        p_values[test] = running_max
    return p_values


def test_step_down_p_values_equal_a_loop(generator, device):
    observed = torch.randn(9, generator=generator, dtype=torch.float64) + 1
    observed[4] = torch.nan
    null_statistics = torch.randn(200, 9, generator=generator, dtype=torch.float64)
    null_statistics[:, 2] = null_statistics[:, 1]  # two identical tests
    null_statistics[7] = observed.nan_to_num(0)  # ties count
    test = StepDown(observed.to(device))
    for part in null_statistics.to(device).split(70):
        test.add(part)
    np.testing.assert_allclose(test.p_values().cpu(), step_down(observed.numpy(), null_statistics.numpy()), rtol=1e-12)


@pytest.mark.parametrize("metric", [WEAT, RND, ECT, RIPA, GWEAT], ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
def test_max_t_correction_of_one_query_equals_uncorrected_p_value(metric, alternative, generator, device):
    """The p-value of one query agrees with the uncorrected one of independent draws, also with a missing target."""
    model = model_of(torch.randn(24, 5, generator=generator).to(device))
    targets, attributes = [words(0, 6), words(6, 12)], [words(12, 18), words(18, 24)]
    attributes = attributes[:1] if metric.metric_template == (2, 1) else attributes
    options = {"p_value": True, "method": "approximate", "alternative": alternative}
    options |= {"permutations": 2000, "seed": 4}
    for first in (targets[0], [*targets[0][:5], "?"]):
        query = Query([first, targets[1]], attributes)
        uncorrected = p_values_of(metric(**options), [query], [model])
        if not (metric.paired and "?" in first):
            assert uncorrected.isfinite().all()
        corrected = p_values_of(metric(**options), [query], [model], correction="max-t")
        assert torch.equal(corrected.isnan(), uncorrected.isnan())
        assert not ((corrected - uncorrected).abs() > four_standard_errors(uncorrected, 2000)).any()


def four_standard_errors(p: torch.Tensor, draws: int) -> torch.Tensor:
    """Return four standard errors of the difference of two p-values of independent draws."""
    return 4 * (2 * p * (1 - p) / draws).sqrt()


def null_queries(shared: bool) -> list[Query]:
    """Return 20 queries of 6 + 6 targets and 2 x 5 attributes; targets are shared by all queries or distinct."""
    names = iter(f"w{i}" for i in range(10_000))

    def take(count: int) -> list[str]:
        return [next(names) for _ in range(count)]

    targets = [take(6), take(6)]
    return [
        Query(targets if shared else [take(6), take(6)], [take(5), take(5)], [f"x{i}", f"y{i}"], ["a", "b"])
        for i in range(20)
    ]


def test_max_t_correction_of_correlated_queries_is_small(generator):
    """If the results of 20 queries are strongly correlated, the smallest p-value is hardly corrected."""
    queries = null_queries(True)
    vectors = torch.randn(12 + 200, 50, generator=generator) * 0.3
    axis = torch.randn(50, generator=generator)
    for q in range(20):
        vectors[12 + 10 * q : 17 + 10 * q] += axis
        vectors[17 + 10 * q : 22 + 10 * q] -= axis
    vectors[:6] += 0.2 * axis
    options = {"p_value": True, "method": "approximate", "permutations": 2000}
    uncorrected, holm, max_t = (
        p_values_of(WEAT(**options), queries, [model_of(vectors)], correction=correction)
        for correction in (None, "holm", "max-t")
    )
    assert (uncorrected <= max_t + four_standard_errors(uncorrected, 2000)).all() and (max_t <= holm).all()
    assert max_t.min() < 3 * uncorrected.min() and holm.min() == 20 * uncorrected.min()


class CustomWEAT(WEAT):
    def run_query(self, query, model):
        return super().run_query(query, model)


@pytest.mark.parametrize(
    ("metric", "params", "correction", "message"),
    [
        (WEAT, {}, "max-t", "got 'max-t' without p-values; write WEAT(p_value=True)"),
        (WEAT, {"p_value": True, "method": "exact"}, "max-t",
         "got 'max-t' with method='exact', wanted 'approximate': it draws"),
        (WEAT, {}, "y", "got 'y', wanted one of 'max-t', 'holm', 'bh'"),
        (CustomWEAT, {"p_value": True}, "max-t",
         "got 'max-t' for WEAT, which draws no scores; write 'holm' or 'bh'"),
    ],
)  # fmt: skip
def test_max_t_correction_without_random_draws_is_refused(metric, params, correction, message, generator):
    query = Query([words(0, 2), words(2, 4)], [words(4, 6), words(6, 8)])
    model = model_of(torch.randn(8, 3, generator=generator))
    with pytest.raises(ValueError, match=f"^{re.escape(f'correction: {message}')}$"):
        p_values_of(metric(**params), [query], [model], correction=correction)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_familywise_error_of_null_queries(shared, generator):
    """5 % of 1,000 families of 20 null queries have a corrected p-value of at most .05."""
    queries = null_queries(shared)
    count = 1 + max(int(w[1:]) for q in queries for sets in (*q.target_sets, *q.attribute_sets) for w in sets)
    options = {"p_value": True, "method": "approximate", "permutations": 399}
    false = dict.fromkeys((None, "max-t", "holm"), 0)
    for _ in range(1000):
        model = model_of(torch.randn(count, 8, generator=generator))
        for correction in false:
            p_values = p_values_of(WEAT(**options), queries, [model], correction=correction)
            false[correction] += bool((p_values <= 0.05).any())
    print({correction: count / 1000 for correction, count in false.items()}, "shared" if shared else "own targets")
    assert abs(false["max-t"] / 1000 - 0.05) < 0.02
    assert false[None] > 300 and false["holm"] <= 70
