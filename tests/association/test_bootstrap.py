"""Bootstrap intervals against NumPy loops, and their invariances."""

import functools
import math
import warnings

import numpy as np
import pytest
import torch
from metric_cases import answer
from raising import raises
from scores import SCORES, random_sets

from tensormetrics import association
from tensormetrics.association import RND, Query, WordEmbeddingModel, functional
from tensormetrics.association.functional import WordSet, bootstrap_interval, rnd
from tensormetrics.association.sets.set_checks import weights_as_masks
from tensormetrics.core.resampling.draws import t_scales
from tensormetrics.core.resampling.weights import replicate_weights
from tensormetrics.uncertainty import UncertaintyWarning

METRICS = {
    name: (score, sets)
    for name, (score, _, sets) in SCORES.items()
    if name not in ("sc_weat", "rnd_cos") and not name.startswith("direct_bias_")
}
METRICS["mean_sc_weat"] = functional.mean_sc_weat, "wab"
METRICS["rnd_cos"] = functools.partial(functional.rnd, distance="cos"), "xya"
METRICS["rnsb_free_intercept"] = functools.partial(functional.rnsb, penalize_intercept=False), "tab"
pytestmark = pytest.mark.filterwarnings("ignore:rnd of sets of")
every_metric = pytest.mark.parametrize(("metric", "sets"), METRICS.values(), ids=METRICS.keys())


def sample_shapes(sets, tensors):
    """Yield the letter and the shape of the words of each sample; pairs and tuples are drawn jointly."""
    for n, (name, words) in enumerate(zip(sets, tensors, strict=True)):
        if not (name == "p" and n):
            is_one = words.ndim == 2 or name == "P"
            yield name, words.shape[-2:-1] if is_one else words.shape[-3:-1]


def interval_by_hand(metric, sets, tensors, samples, replicates, confidence, seed, limit):
    """Compute the ends of the interval from replicate weights and from weights that leave out one word."""

    def z(score):
        return np.arctanh(np.asarray(score) / limit) if limit else np.asarray(score)

    def score(**weights):
        with weights_as_masks():
            weighted = zip(sets, tensors, strict=True)
            return metric(*(WordSet(t, weights[s].expand(t.shape[:-1])) for s, t in weighted)).item()

    value = z(metric(*tensors).item())
    full_weights = {name: torch.ones(shape, device=tensors[0].device).double() for name, shape in samples}
    draws = []
    for replicate in range(replicates):
        weights = {}
        for index, (name, shape) in enumerate(samples):
            positions = np.arange(shape.numel())
            units = torch.from_numpy((index << 48) + (positions // shape[-1] << 24) + positions % shape[-1])
            sample_weights = torch.cat([part for _, part in replicate_weights(units, replicates, seed)])[
                replicate
            ].view(shape)
            weights[name] = (sample_weights / sample_weights.mean(-1, keepdim=True)).to(tensors[0].device)
        draws.append(z(score(**weights)))
    draws, variances, df_terms = np.array(draws), [], []
    for name, shape in samples:
        for group in range(shape[:-1].numel()):
            squares = 0.0
            for word in range(shape[-1]):
                reduced_weights = full_weights[name].clone().view(-1, shape[-1])
                reduced_weights[group, word] = 0
                reduced_weights[group] *= shape[-1] / (shape[-1] - 1)
                squares += (z(score(**{**full_weights, name: reduced_weights.view(shape)})) - value) ** 2
            variances.append(squares * (shape[-1] - 1) / shape[-1])
            df_terms.append(variances[-1] ** 2 / (shape[-1] - 1))
    df = int(min(sum(variances) ** 2 / sum(df_terms), 100))
    factors = t_scales(seed, replicates, df, torch.device("cpu")).numpy()
    moved = (draws - np.nanmean(draws)) / np.nanstd(draws, ddof=1) * np.sqrt(sum(variances)) * factors + value
    ends = np.nanquantile(moved, [(1 - confidence) / 2, (1 + confidence) / 2])
    return limit * np.tanh(ends) if limit else ends


@every_metric
def test_bootstrap_interval_equals_loop_over_replicates(metric, sets, generator, device):
    tensors = random_sets(sets, generator, device)
    samples = list(sample_shapes(sets, tensors))
    limit = None
    if metric is functional.weat_effect_size:
        x, y = (t.shape[-2] for t in tensors[:2])
        limit = (x + y) / (x * y) ** 0.5
    expected = interval_by_hand(metric, sets, tensors, samples, 30, 0.5, 3, limit)
    interval = bootstrap_interval(metric, *tensors, replicates=30, confidence=0.5, seed=3)
    value, low, high = interval
    bias = float(
        value - interval.details.get("corrected", value)
    )  # see test_bootstrap_interval_rnd_of_unequal_sets_is_bias_corrected
    expected = [end - bias for end in expected]
    expected = min(expected[0], value.item()), max(expected[1], value.item())
    expected = np.clip(expected, *{functional.ect: (-1, 1), functional.rnsb: (0, None)}.get(metric, (None, None)))
    np.testing.assert_allclose([low.item(), high.item()], expected, rtol=1e-5 if sets == "tab" else 1e-8)


@every_metric
def test_bootstrap_interval_batches_and_padding_change_nothing(metric, sets, generator, device):
    tensors = random_sets(sets, generator, device, 2)
    options = dict(replicates=20, seed=1)
    got = bootstrap_interval(metric, *tensors, **options)
    singles = [bootstrap_interval(metric, *(t[i] for t in tensors), **options) for i in range(2)]
    np.testing.assert_allclose(
        torch.stack([*got], -1).cpu(), torch.tensor([[*map(float, estimate)] for estimate in singles]), rtol=1e-7
    )
    padded = []
    for words in tensors:
        mask = torch.nn.functional.pad(torch.ones(words.shape[:-1], dtype=torch.bool, device=device), (1, 2))
        padded.append(WordSet(torch.nn.functional.pad(words, (0, 0, 1, 2), value=torch.nan), mask))
    again = bootstrap_interval(metric, *padded, **options)
    np.testing.assert_allclose(torch.stack([*again]).cpu(), torch.stack([*got]).cpu(), rtol=1e-7)


@pytest.mark.parametrize("budget", [3000, 300])  # many replicates at once share their cosines, few do not
def test_bootstrap_interval_depends_on_seed_but_not_on_chunk_size(budget, generator, device, monkeypatch):
    tensors = random_sets("xyab", generator, device)
    got = bootstrap_interval(functional.weat, *tensors)
    assert not torch.equal(got.low, bootstrap_interval(functional.weat, *tensors, seed=1).low)
    monkeypatch.setattr("tensormetrics.association.resampling.draws.BUDGET", budget)
    chunked = bootstrap_interval(functional.weat, *tensors)
    np.testing.assert_allclose(torch.stack([*chunked]).cpu(), torch.stack([*got]).cpu(), rtol=1e-12)


def test_bootstrap_interval_nan_replicates_are_dropped_unless_in_majority(device):
    e1, e2 = torch.eye(2, device=device)
    x, y = torch.stack([e1, e2]), torch.stack([e1, e2])
    assert bootstrap_interval(functional.weat_effect_size, x[:1], y[:1], e1[None], e2[None]).low.isnan()
    mask = torch.tensor([False, False], device=device)
    assert bootstrap_interval(functional.weat, WordSet(x, mask), y, x, y).low.isnan()

    def rarely_defined(x):
        vectors, mask, _ = WordSet.of(x)
        score = (vectors[..., 0] * (torch.ones_like(vectors[..., 0]) if mask is None else mask)).mean(-1)
        return score.masked_fill(score > 0.6, torch.nan)

    value, low, high = bootstrap_interval(rarely_defined, torch.eye(2, device=device), replicates=200)
    assert value == 0.5 and low < 0.5 <= high


def test_bootstrap_interval_sets_of_one_word_are_not_resampled(generator, device):
    x, y, a, b = random_sets("xyab", generator, device)
    _, low, high = bootstrap_interval(functional.weat, x[:1], y[:1], a[:1], b[:1])
    assert low == high and low.dtype == torch.float64
    e1, e2 = torch.eye(2, device=device).unsqueeze(1)
    assert bootstrap_interval(functional.weat, e1, e2, e1, e2).low == 2
    _, low, high = bootstrap_interval(functional.weat, x[:1], y[:1], a, b)
    _, low_of_targets, high_of_targets = bootstrap_interval(functional.weat, x, y, a, b)
    assert low < high and low_of_targets < high_of_targets


def test_bootstrap_interval_of_words_that_are_all_alike_has_a_width(device):
    def alike(count, axis):
        return torch.eye(8, device=device)[axis].repeat(count, 1)

    for count, width in (5, 2 / 6), (50, 2 / 51):  # at least the mean mass of an imagined score
        x, y, a, b = (alike(count, axis) for axis in (0, 1, 0, 1))
        value, low, high = bootstrap_interval(functional.weat_effect_size, x, y, a, b)
        assert float(value) == pytest.approx(float(high)) == pytest.approx(2) and low < 2 - width
        value, low, high = bootstrap_interval(functional.weat, x, y, a, b)
        assert -4 * count <= low < value - width < value + width < high <= 4 * count
        value, low, high = bootstrap_interval(functional.mac, x, a[None])
        assert value == low == 0 and high > width
    assert bootstrap_interval(functional.rnsb, x, a, b).high == math.inf  # has no largest score


@pytest.mark.parametrize("metric", [functional.weat, functional.weat_effect_size])
def test_weat_batch_of_counts_equals_repeated_sets(metric, generator, device):
    sets = random_sets("xyab", generator, device, 2)
    counts = [torch.randint(0, 3, (2, 200, s.shape[-2]), generator=generator).to(device) for s in sets]
    counts[0][0, 1], counts[2][1, 5] = 0, 0
    scores = metric(*(WordSet(s[:, None], count) for s, count in zip(sets, counts, strict=True)))
    expected = metric(*(WordSet(s[:, None].repeat(1, 200, 1, 1), n) for s, n in zip(sets, counts, strict=True)))
    torch.testing.assert_close(scores, expected, rtol=1e-10, atol=1e-13, equal_nan=True)
    assert 2 <= scores.isnan().sum() < 40


def test_weat_batch_of_counts_of_large_sets_equals_single_counts(generator, device):
    sets = [3 * torch.randn(440, 300, generator=generator).to(device) for _ in range(4)]
    counts = torch.randint(0, 3, (4, 65, 440), generator=generator).to(device)
    scores = functional.weat(*map(WordSet, sets, counts))
    singles = [functional.weat(*map(WordSet, sets, counts[:, i])) for i in (0, 64)]
    torch.testing.assert_close(scores[[0, 64]], torch.stack(singles), rtol=1e-9, atol=1e-12)


def test_bootstrap_interval_invalid_arguments_raise(generator, device):
    x = torch.zeros(2, 3, device=device)
    with raises(TypeError, "metric: got a ECT, wanted a function; write metric.score_function()"):
        bootstrap_interval(association.ECT(), x, x, x)
    with pytest.raises(TypeError, match=r"^metric: got a function that takes no WordSet \(unsupported operand type"):
        bootstrap_interval(lambda x, y: (x - y).mean((-2, -1)), x, x)
    large = [torch.rand(3, 2**21, generator=generator).to(device) for _ in range(3)]  # limits the draws of a chunk
    for score, shape in (
        (lambda x, y, a: functional.rnd(*(WordSet.of(s).values for s in (x, y, a))), r"\(1,\)"),
        (functional.sc_weat, r"\(50, 3\)"),
    ):
        with pytest.raises(TypeError, match=f"^metric: got a function whose scores of .*draws have the shape {shape}"):
            bootstrap_interval(score, *(s[:, :2] for s in large), replicates=50)
        with pytest.raises(TypeError, match="^metric: got a function whose scores of "):
            bootstrap_interval(score, *large, replicates=4)
    with pytest.raises(
        TypeError, match="^metric: got a function that returns a Estimate, wanted one that returns one score"
    ):
        bootstrap_interval(functional.ceat, *torch.randn(4, 3, 2, 5, generator=generator).to(device))
    with pytest.raises(TypeError, match="^a.mask: got torch.int64, wanted torch.bool: the words to draw"):
        bootstrap_interval(functional.ect, x, x, WordSet(x, torch.ones(2, dtype=torch.int64, device=device)))
    with pytest.raises(TypeError, match="^x.mask: got torch.float32, wanted torch.bool"):
        functional.ect(WordSet(x, x[:, 0]), x, x)  # only the bootstrap passes weights
    with raises(ValueError, "a: got 2 dimensions, wanted 3 as x has"):
        bootstrap_interval(functional.ect, x, x, x[:, :2])


def test_bootstrap_interval_rnd_of_unequal_sets_is_bias_corrected(generator):
    """The jackknife over the words of both sets estimates the bias; the replicates lie around the corrected score."""
    x, y, a = (torch.randn(count, 6, generator=generator, dtype=torch.float64) for count in (4, 9, 5))
    value = rnd(x, y, a)
    bias = 0
    for k, target in enumerate((x, y)):
        without = torch.stack([
            rnd(*[torch.cat([target[:i], target[i + 1 :]]) if k == j else other for j, other in enumerate((x, y))], a)
            for i in range(len(target))
        ])  # fmt: skip
        bias += (len(target) - 1) * float(without.mean() - value)
    with pytest.warns(UncertaintyWarning, match="^rnd of sets of 4 and 9 words is biased by their sizes"):
        interval = bootstrap_interval(rnd, x, y, a, replicates=200)
    assert float(interval.value) == float(value)
    assert float(interval.details["corrected"]) == pytest.approx(float(value) - bias, rel=1e-7)
    assert not bootstrap_interval(functools.partial(rnd, distance="cos"), x, y, a, replicates=20).details
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bootstrap_interval(rnd, x, y[:4], a, replicates=20)


@pytest.mark.slow
@pytest.mark.parametrize(("dims", "sizes"), [(50, (5, 50)), (300, (8, 16)), (20, (3, 18))])
def test_bootstrap_interval_rnd_of_one_population_covers_zero(dims, sizes, generator):
    x, y, a = (torch.randn(100, count, dims, generator=generator) for count in (*sizes, 20))
    with pytest.warns(UncertaintyWarning):
        interval = bootstrap_interval(rnd, x, y, a, replicates=200)
    covered = ((interval.low <= 0) & (interval.high >= 0)).double().mean()
    assert covered >= 0.93 and interval.details["corrected"].mean().abs() < 0.25 * interval.value.mean()


def test_run_query_rnd_of_unequal_sets_reports_corrected_score():
    words = [f"w{i}" for i in range(12)]
    table = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    model = WordEmbeddingModel.from_tensor(table, words)
    query = Query([words[:3], words[3:9]], [words[9:]])
    with pytest.warns(UncertaintyWarning):
        result = answer(RND(replicates=50), query, model)
    assert result["corrected"] != result["rnd"] and result["low"] < result["corrected"] < result["high"]
    assert "corrected" not in answer(RND(distance="cos", replicates=50), query, model)


def test_interval_of_effect_size_with_unequal_rows_stays_within_its_limit(device):
    """The largest effect size depends on the number of words, not of rows."""
    x, y = (
        torch.tensor([[1.0, 0], [1, 0.1], [1, 0.2]]),
        torch.tensor([[0.1, 1], [0, 1], [0.2, 1]]).repeat_interleave(5, 0),
    )
    a, b = torch.tensor([[1.0, 0]]), torch.tensor([[0.0, 1]])
    words = torch.arange(3).repeat_interleave(5)
    sets = [x.to(device), WordSet(y.to(device), words=words.to(device)), a.to(device), b.to(device)]
    by_word = bootstrap_interval(functional.weat_effect_size, *sets)
    one = bootstrap_interval(functional.weat_effect_size, sets[0], y[::5].to(device), *sets[2:])
    assert by_word.high <= 2
    torch.testing.assert_close(torch.stack(list(by_word)), torch.stack(list(one)), rtol=1e-9, atol=1e-9)


RANGES = {"weat": (-8, 8), "mac": (0, 2), "ect": (-1, 1), "rnsb": (0, math.inf)}  # of the sets below


@pytest.mark.parametrize("name", RANGES)
def test_interval_stays_within_the_range_of_the_score(name, device):
    x, y = torch.tensor([[1.0, 0], [0.2, 1]], device=device), torch.tensor([[0.0, 1], [0.8, 0.1]], device=device)
    attributes = {"mac": (torch.stack([x, y]),), "ect": (torch.cat([x, y]),)}.get(name, (x[:1].repeat(2, 1), y))
    sets = (x, *attributes) if name == "mac" else (x, y, *attributes)
    if name == "rnsb":
        sets = torch.cat([x, y]), *attributes
    estimate = bootstrap_interval(getattr(association.functional, name), *sets, confidence=0.999)
    least, largest = RANGES[name]
    assert least <= estimate.low <= estimate.value <= estimate.high <= largest
    assert estimate.low == least or estimate.high == largest  # else the sets would not reach the end
