"""p-values of many questions at once."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from tensormetrics.association import ECT, GWEAT, RIPA, RND, WEAT, Query, WordEmbeddingModel, run_queries
from tensormetrics.uncertainty import correct_p_values
from tensormetrics.uncertainty.engine.corrections import StepDown


def test_by_hand(device):
    p = torch.tensor([[0.01, 0.04, 0.03], [0.5, math.nan, 0.02]], device=device)
    holm = [[0.03, 0.06, 0.06], [0.5, math.nan, 0.04]]
    bh = [[0.03, 0.04, 0.04], [0.5, math.nan, 0.04]]
    for correction, expected in ("holm", holm), ("bh", bh):
        np.testing.assert_allclose(correct_p_values(p, correction).cpu(), expected, rtol=1e-6)


def test_agreement_with_scipy(generator, device):
    p = torch.rand(50, 20, generator=generator, dtype=torch.float64) ** 3
    expected = scipy.stats.false_discovery_control(p.numpy(), axis=1)
    np.testing.assert_allclose(correct_p_values(p.to(device), "bh").cpu(), expected, rtol=1e-12)


def test_one_false_discovery_in_twenty_families(generator):
    """1,000 families of 20 null questions: even one p-value of at most .05 comes in 1 of 20 of them."""
    p = torch.rand(1000, 20, generator=generator, dtype=torch.float64)
    for correction in ("holm", "bh"):
        assert abs((correct_p_values(p, correction) <= 0.05).any(1).double().mean() - 0.05) < 0.02
    assert (p <= 0.05).any(1).double().mean() > 0.5


def test_queries_of_a_model_are_one_family(generator):
    words = [f"w{i}" for i in range(24)]
    models = [WordEmbeddingModel.from_tensor(torch.randn(24, 5, generator=generator), words, name) for name in "ab"]
    queries = [Query([words[i : i + 4], words[i + 4 : i + 8]], [words[16:20], words[20:]]) for i in range(0, 9, 4)]
    queries = [Query(q.target_sets, q.attribute_sets, [f"t{i}", f"s{i}"]) for i, q in enumerate(queries)]
    asked = {"metric_params": {"calculate_p_value": True}, "value": "p_value", "as_dataframe": False}
    plain = run_queries(WEAT, queries, models, **asked)
    corrected = run_queries(WEAT, queries, models, correction="holm", **asked)
    assert plain.correction is None and corrected.correction == "holm"
    assert torch.equal(corrected.values, correct_p_values(plain.values))
    assert not torch.equal(plain.values, corrected.values)
    with pytest.raises(ValueError, match=r"^correction: got 'holm' with value='result', wanted value='p_value'$"):
        run_queries(WEAT, queries, models, correction="holm")
    with pytest.raises(ValueError, match="^correction: got 'x', wanted one of 'holm', 'bh'$"):
        correct_p_values(plain.values, "x")


def step_down(observed: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Westfall & Young 1993, Algorithm 2.8, test by test and draw by draw."""
    order = sorted((t for t in range(len(observed)) if not np.isnan(observed[t])), key=lambda t: -observed[t])
    found, last = np.full(len(observed), np.nan), 0.0
    for place, test in enumerate(order):
        largest = [max(row[t] for t in order[place:]) for row in drawn]
        last = max(last, (1 + sum(one >= observed[test] for one in largest)) / (1 + len(drawn)))
        found[test] = last
    return found


def test_step_down_maxima_by_a_loop(generator, device):
    observed = torch.randn(9, generator=generator, dtype=torch.float64) + 1
    observed[4] = torch.nan
    drawn = torch.randn(200, 9, generator=generator, dtype=torch.float64)
    drawn[:, 2] = drawn[:, 1]  # two tests that are one
    drawn[7] = observed.nan_to_num(0)  # ties count
    test = StepDown(observed.to(device))
    for part in drawn.to(device).split(70):
        test.add(part)
    np.testing.assert_allclose(test.p_values().cpu(), step_down(observed.numpy(), drawn.numpy()), rtol=1e-12)


@pytest.mark.parametrize("metric", [WEAT, RND, ECT, RIPA, GWEAT], ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("alternative", ["right-sided", "left-sided", "two-sided"])
def test_one_query_needs_no_correction(metric, alternative, generator, device):
    """Of one query the p-value is the one that other draws give it alone, lost words included."""
    words = [f"w{i}" for i in range(24)]
    vectors = torch.randn(24, 5, generator=generator).to(device)
    model = WordEmbeddingModel.from_tensor(vectors, words, "m")
    sides = [words[:6], words[6:12]], [words[12:18], words[18:]]
    if metric.metric_template == (2, 1):
        sides = sides[0], sides[1][:1]
    options = {"calculate_p_value": True, "p_value_method": "approximate", "p_value_test_type": alternative}
    options |= {"p_value_iterations": 2000, "p_value_seed": 4}
    asked = {"metric_params": options, "value": "p_value", "as_dataframe": False}
    for query in (Query(*sides), Query([[*sides[0][0][:5], "?"], sides[0][1]], sides[1])):
        alone = run_queries(metric, [query], [model], **asked).values
        if not (metric.paired and "?" in query.target_sets[0]):
            assert alone.isfinite().all()
        corrected = run_queries(metric, [query], [model], correction="max-t", **asked).values
        assert torch.equal(corrected.isnan(), alone.isnan())
        assert not ((corrected - alone).abs() > four_standard_errors(alone, 2000)).any()


def four_standard_errors(p: torch.Tensor, draws: int) -> torch.Tensor:
    """How far two p-values of independent draws may differ."""
    return 4 * (2 * p * (1 - p) / draws).sqrt()


def null_queries(shared: bool) -> list[Query]:
    """20 queries of 6 + 6 target and 2 x 5 attribute words, of the same targets or each of its own."""
    names = iter(f"w{i}" for i in range(10_000))

    def take(count: int) -> list[str]:
        return [next(names) for _ in range(count)]

    targets = [take(6), take(6)]
    return [
        Query(targets if shared else [take(6), take(6)], [take(5), take(5)], [f"x{i}", f"y{i}"], ["a", "b"])
        for i in range(20)
    ]


def test_correlated_questions_cost_little(generator):
    """Where 20 queries ask nearly the same of the same words, the smallest p-value is hardly corrected."""
    queries = null_queries(True)
    words = [f"w{i}" for i in range(12 + 200)]
    vectors = torch.randn(len(words), 50, generator=generator) * 0.3
    axis = torch.randn(50, generator=generator)
    for q in range(20):
        vectors[12 + 10 * q : 17 + 10 * q] += axis
        vectors[17 + 10 * q : 22 + 10 * q] -= axis
    vectors[:6] += 0.2 * axis
    model = WordEmbeddingModel.from_tensor(vectors, words, "m")
    options = {"calculate_p_value": True, "p_value_method": "approximate", "p_value_iterations": 2000}
    asked = {"metric_params": options, "value": "p_value", "as_dataframe": False}
    plain, holm, together = (
        run_queries(WEAT, queries, [model], correction=how, **asked).values for how in (None, "holm", "max-t")
    )
    assert (plain <= together + four_standard_errors(plain, 2000)).all() and (together <= holm).all()
    assert together.min() < 3 * plain.min() and holm.min() == 20 * plain.min()


def test_max_t_is_refused_where_nothing_is_drawn(generator):
    words = [f"w{i}" for i in range(8)]
    model = WordEmbeddingModel.from_tensor(torch.randn(8, 3, generator=generator), words, "m")
    query = Query([words[:2], words[2:4]], [words[4:6], words[6:]])
    drawn = {"calculate_p_value": True}
    for metric, params, message in (
        (WEAT, {}, "correction: got 'max-t' without p-values; write metric_params={'calculate_p_value': True}"),
        (
            WEAT,
            {**drawn, "p_value_method": "exact"},
            "correction: got 'max-t' with p_value_method='exact', wanted 'approximate': it draws",
        ),
    ):
        with pytest.raises(ValueError) as error:
            run_queries(metric, [query], [model], metric_params=params, value="p_value", correction="max-t")
        assert str(error.value) == message
    with pytest.raises(ValueError, match="^correction: got 'y', wanted one of 'max-t', 'holm', 'bh'$"):
        run_queries(WEAT, [query], [model], value="p_value", correction="y")

    class Mine(WEAT):
        def run_query(self, *args, **options):
            return super().run_query(*args, **options)

    with pytest.raises(ValueError, match="^correction: got 'max-t' for WEAT, which draws no scores; write 'holm' or"):
        run_queries(Mine, [query], [model], metric_params=drawn, value="p_value", correction="max-t")


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_familywise_error_of_null_queries(shared, generator):
    """1,000 families of 20 null queries: even one p-value of at most .05 comes in 1 of 20 of them."""
    queries = null_queries(shared)
    words = sorted({w for q in queries for sets in (*q.target_sets, *q.attribute_sets) for w in sets})
    options = {"calculate_p_value": True, "p_value_method": "approximate", "p_value_iterations": 399}
    asked = {"metric_params": options, "value": "p_value", "as_dataframe": False}
    false = dict.fromkeys((None, "max-t", "holm"), 0)
    for _ in range(1000):
        model = WordEmbeddingModel.from_tensor(torch.randn(len(words), 8, generator=generator), words, "m")
        for how in false:
            false[how] += bool((run_queries(WEAT, queries, [model], correction=how, **asked).values <= 0.05).any())
    print({how: number / 1000 for how, number in false.items()}, "shared" if shared else "own targets")
    assert abs(false["max-t"] / 1000 - 0.05) < 0.02
    assert false[None] > 300 and false["holm"] <= 70
