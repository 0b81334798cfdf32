"""Corrections of p-values for multiple testing."""

import math

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


def test_correct_p_values_null_families_reject_at_the_nominal_rate(generator):
    """5 % of 1,000 families of 20 null hypotheses have a corrected p-value of at most .05."""
    p = torch.rand(1000, 20, generator=generator, dtype=torch.float64)
    for correction in ("holm", "bh"):
        assert abs((correct_p_values(p, correction) <= 0.05).any(1).double().mean() - 0.05) < 0.02
    assert (p <= 0.05).any(1).double().mean() > 0.5


def test_run_queries_correction_treats_queries_of_a_model_as_one_family(generator):
    vocabulary = [f"w{i}" for i in range(24)]
    models = [
        WordEmbeddingModel.from_tensor(torch.randn(24, 5, generator=generator), vocabulary, name) for name in "ab"
    ]
    queries = [
        Query([vocabulary[i : i + 4], vocabulary[i + 4 : i + 8]], [vocabulary[16:20], vocabulary[20:]])
        for i in range(0, 9, 4)
    ]
    queries = [Query(q.target_sets, q.attribute_sets, [f"t{i}", f"s{i}"]) for i, q in enumerate(queries)]
    run_options = {"metric_params": {"calculate_p_value": True}, "value": "p_value", "as_dataframe": False}
    uncorrected = run_queries(WEAT, queries, models, **run_options)
    corrected = run_queries(WEAT, queries, models, correction="holm", **run_options)
    assert uncorrected.correction is None and corrected.correction == "holm"
    assert torch.equal(corrected.values, correct_p_values(uncorrected.values))
    assert not torch.equal(uncorrected.values, corrected.values)
    with pytest.raises(ValueError, match=r"^correction: got 'holm' with value='result', wanted value='p_value'$"):
        run_queries(WEAT, queries, models, correction="holm")
    with pytest.raises(ValueError, match="^correction: got 'x', wanted one of 'holm', 'bh'$"):
        correct_p_values(uncorrected.values, "x")


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
@pytest.mark.parametrize("alternative", ["right-sided", "left-sided", "two-sided"])
def test_max_t_correction_of_one_query_equals_uncorrected_p_value(metric, alternative, generator, device):
    """The p-value of one query agrees with the uncorrected one of independent draws, also with a missing target."""
    vocabulary = [f"w{i}" for i in range(24)]
    vectors = torch.randn(24, 5, generator=generator).to(device)
    model = WordEmbeddingModel.from_tensor(vectors, vocabulary, "m")
    sets_of_names = [vocabulary[:6], vocabulary[6:12]], [vocabulary[12:18], vocabulary[18:]]
    if metric.metric_template == (2, 1):
        sets_of_names = sets_of_names[0], sets_of_names[1][:1]
    options = {"calculate_p_value": True, "p_value_method": "approximate", "p_value_test_type": alternative}
    options |= {"p_value_iterations": 2000, "p_value_seed": 4}
    run_options = {"metric_params": options, "value": "p_value", "as_dataframe": False}
    for query in (
        Query(*sets_of_names),
        Query([[*sets_of_names[0][0][:5], "?"], sets_of_names[0][1]], sets_of_names[1]),
    ):
        uncorrected = run_queries(metric, [query], [model], **run_options).values
        if not (metric.paired and "?" in query.target_sets[0]):
            assert uncorrected.isfinite().all()
        corrected = run_queries(metric, [query], [model], correction="max-t", **run_options).values
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
    vocabulary = [f"w{i}" for i in range(12 + 200)]
    vectors = torch.randn(len(vocabulary), 50, generator=generator) * 0.3
    axis = torch.randn(50, generator=generator)
    for q in range(20):
        vectors[12 + 10 * q : 17 + 10 * q] += axis
        vectors[17 + 10 * q : 22 + 10 * q] -= axis
    vectors[:6] += 0.2 * axis
    model = WordEmbeddingModel.from_tensor(vectors, vocabulary, "m")
    options = {"calculate_p_value": True, "p_value_method": "approximate", "p_value_iterations": 2000}
    run_options = {"metric_params": options, "value": "p_value", "as_dataframe": False}
    uncorrected, holm, max_t = (
        run_queries(WEAT, queries, [model], correction=correction, **run_options).values
        for correction in (None, "holm", "max-t")
    )
    assert (uncorrected <= max_t + four_standard_errors(uncorrected, 2000)).all() and (max_t <= holm).all()
    assert max_t.min() < 3 * uncorrected.min() and holm.min() == 20 * uncorrected.min()


def test_max_t_correction_without_random_draws_is_refused(generator):
    vocabulary = [f"w{i}" for i in range(8)]
    model = WordEmbeddingModel.from_tensor(torch.randn(8, 3, generator=generator), vocabulary, "m")
    query = Query([vocabulary[:2], vocabulary[2:4]], [vocabulary[4:6], vocabulary[6:]])
    metric_params = {"calculate_p_value": True}
    for metric, params, message in (
        (WEAT, {}, "correction: got 'max-t' without p-values; write metric_params={'calculate_p_value': True}"),
        (
            WEAT,
            {**metric_params, "p_value_method": "exact"},
            "correction: got 'max-t' with p_value_method='exact', wanted 'approximate': it draws",
        ),
    ):
        with pytest.raises(ValueError) as error:
            run_queries(metric, [query], [model], metric_params=params, value="p_value", correction="max-t")
        assert str(error.value) == message
    with pytest.raises(ValueError, match="^correction: got 'y', wanted one of 'max-t', 'holm', 'bh'$"):
        run_queries(WEAT, [query], [model], value="p_value", correction="y")

    class CustomWEAT(WEAT):
        def run_query(self, *args, **options):
            return super().run_query(*args, **options)

    with pytest.raises(ValueError, match="^correction: got 'max-t' for WEAT, which draws no scores; write 'holm' or"):
        run_queries(CustomWEAT, [query], [model], metric_params=metric_params, value="p_value", correction="max-t")


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_familywise_error_of_null_queries(shared, generator):
    """5 % of 1,000 families of 20 null queries have a corrected p-value of at most .05."""
    queries = null_queries(shared)
    vocabulary = sorted({w for q in queries for sets in (*q.target_sets, *q.attribute_sets) for w in sets})
    options = {"calculate_p_value": True, "p_value_method": "approximate", "p_value_iterations": 399}
    run_options = {"metric_params": options, "value": "p_value", "as_dataframe": False}
    false = dict.fromkeys((None, "max-t", "holm"), 0)
    for _ in range(1000):
        model = WordEmbeddingModel.from_tensor(torch.randn(len(vocabulary), 8, generator=generator), vocabulary, "m")
        for correction in false:
            false[correction] += bool(
                (run_queries(WEAT, queries, [model], correction=correction, **run_options).values <= 0.05).any()
            )
    print({correction: count / 1000 for correction, count in false.items()}, "shared" if shared else "own targets")
    assert abs(false["max-t"] / 1000 - 0.05) < 0.02
    assert false[None] > 300 and false["holm"] <= 70
