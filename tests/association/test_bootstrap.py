"""Bootstrap intervals against replicates made by hand, their coverage, and what must not matter to them."""

import functools

import numpy as np
import pytest
import torch
from scores import SCORES, random_sets

from tensormetrics import association
from tensormetrics.association import bootstrap_interval
from tensormetrics.association.resampling.bootstrap import _counts, resampled_counts
from tensormetrics.association.resampling.random import random_words, stream

METRICS = {
    name: (score, sets)
    for name, (score, _, sets) in SCORES.items()
    if name not in ("sc_weat", "rnd_cos") and not name.startswith("direct_bias_")
}
METRICS["mean_sc_weat"] = association.mean_sc_weat, "wab"
METRICS["rnd_cos"] = functools.partial(association.rnd, distance="cos"), "xya"
METRICS["rnsb_free_intercept"] = functools.partial(association.rnsb, penalize_intercept=False), "tab"
every_metric = pytest.mark.parametrize(("metric", "sets"), METRICS.values(), ids=METRICS.keys())


@every_metric
def test_replicates_are_scores_of_repeated_words(metric, sets, generator, device):
    tensors = random_sets(sets, generator, device)
    _, low, high = bootstrap_interval(metric, *tensors, replicates=9, confidence=0.5, seed=3)
    scores = []
    for replicate in range(9):
        chosen, masks = [], 0
        for n, (name, words) in enumerate(zip(sets, tensors, strict=True)):
            if not (name == "p" and n):
                shape = words.shape[-2:-1] if words.ndim == 2 or name == "P" else words.shape[-3:-1]
                count = _counts(None, None, shape, stream(3) + masks, replicate, 1, device)[0]
                masks += 1
            if count.ndim == 2:
                chosen.append(torch.stack([w.repeat_interleave(c, 0) for w, c in zip(words, count, strict=True)]))
            else:
                chosen.append(words.repeat_interleave(count, -2))
        scores.append(metric(*chosen).item())
    expected = np.nanquantile(scores, [0.25, 0.75])
    np.testing.assert_allclose([low.item(), high.item()], expected, rtol=1e-6 if sets == "tab" else 1e-9)


@every_metric
def test_batches_and_padding(metric, sets, generator, device):
    tensors = random_sets(sets, generator, device, 2)
    options = dict(replicates=20, seed=1)
    got = bootstrap_interval(metric, *tensors, **options)
    alone = [bootstrap_interval(metric, *(t[i] for t in tensors), **options) for i in range(2)]
    np.testing.assert_allclose(
        torch.stack([*got], -1).cpu(), torch.tensor([[*map(float, estimate)] for estimate in alone]), rtol=1e-7
    )
    name = {"p": "pair_mask", "A": "a_mask", "X": "x_mask", "G": "groups_mask", "P": "tuple_mask"}
    padded, masks = [], {}
    for s, words in zip(sets, tensors, strict=True):
        padded.append(torch.nn.functional.pad(words, (0, 0, 1, 2), value=torch.nan))
        shape = (2, words.shape[-2]) if s == "P" else words.shape[:-1]
        mask = torch.ones(shape, dtype=torch.bool, device=device)
        masks[name.get(s, f"{s}_mask")] = torch.nn.functional.pad(mask, (1, 2))
    again = bootstrap_interval(metric, *padded, **options, **masks)
    np.testing.assert_allclose(torch.stack([*again]).cpu(), torch.stack([*got]).cpu(), rtol=1e-7)


def test_one_word_sets_have_no_width(device):
    e1, e2 = torch.eye(2, device=device).unsqueeze(1)
    _, low, high = bootstrap_interval(association.weat, e1, e2, e1, e2)
    assert low == high == 2 and low.dtype == torch.float64


@pytest.mark.parametrize("budget", [3000, 300])  # many replicates at once share their cosines, few do not
def test_pieces_and_seeds(budget, generator, device, monkeypatch):
    tensors = random_sets("xyab", generator, device)
    got = bootstrap_interval(association.weat, *tensors)
    assert not torch.equal(got.low, bootstrap_interval(association.weat, *tensors, seed=1).low)
    monkeypatch.setattr("tensormetrics.association.resampling.draws.BUDGET", budget)
    pieces = bootstrap_interval(association.weat, *tensors)
    np.testing.assert_allclose(torch.stack([*pieces]).cpu(), torch.stack([*got]).cpu(), rtol=1e-12)


def test_nan_replicates_are_left_out_unless_they_are_most(device):
    # The effect size does not vary when one word alone is drawn for both sides: of two words each, 1 in 8 times.
    e1, e2 = torch.eye(2, device=device)
    x, y = torch.stack([e1, e2]), torch.stack([e1, e2])
    _, low, high = bootstrap_interval(association.weat_effect_size, x, y, e1[None], e2[None])
    assert low == pytest.approx(-2) and high == pytest.approx(2)
    assert bootstrap_interval(association.weat_effect_size, x[:1], y[:1], e1[None], e2[None]).low.isnan()
    mask = torch.tensor([False, False], device=device)
    assert bootstrap_interval(association.weat, x, y, x, y, x_mask=mask).low.isnan()


def test_counts_are_uniform(device):
    mask = torch.tensor([[True, False, True, True], [False] * 4], device=device)
    counts = _counts(mask, None, (4,), stream(0), 0, 4000, device).cpu()
    assert (counts[0].sum(-1) == 3).all() and not counts[1].any() and not counts[0, :, 1].any()
    assert (counts[0, :, [0, 2, 3]].double().mean(0) - 1).abs().max() < 4 * (2 / 3 / 4000) ** 0.5


def test_draws_are_those_of_a_loop(device):
    size = torch.tensor([[3, 0], [5, 4], [1, 5]], device=device)
    counts = resampled_counts(size, 5, stream(7), 11, 70).cpu()
    words = random_words(stream(7), 11, 70, 10, device).cpu().numpy()
    expected = np.zeros((3, 70, 2, 5), int)
    for query, row, group in np.ndindex(3, 70, 2):
        n = int(size[query, group])
        for word in words[row, group : 2 * n : 2]:
            expected[query, row, group, int(((word >> 11) / 2**53 + 0.5) * n)] += 1
    assert (counts.numpy() == expected).all()
    assert resampled_counts(size[:0], 5, 1, 0, 4).shape == (0, 4, 2, 5)


@pytest.mark.parametrize("metric", [association.weat, association.weat_effect_size])
def test_many_counts_of_one_query(metric, generator, device):
    sets = random_sets("xyab", generator, device, 2)
    counts = [torch.randint(0, 3, (2, 200, s.shape[-2]), generator=generator).to(device) for s in sets]
    counts[0][0, 1], counts[2][1, 5] = 0, 0
    masks = dict(zip(("x_mask", "y_mask", "a_mask", "b_mask"), counts, strict=True))
    found = metric(*(s[:, None] for s in sets), **masks)
    expected = metric(*(s[:, None].repeat(1, 200, 1, 1) for s in sets), **masks)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13, equal_nan=True)
    assert 2 <= found.isnan().sum() < 40


def test_many_counts_of_large_sets(generator, device):
    sets = [3 * torch.randn(440, 300, generator=generator).to(device) for _ in range(4)]
    counts = torch.randint(0, 3, (4, 65, 440), generator=generator).to(device)
    masks = ("x_mask", "y_mask", "a_mask", "b_mask")
    found = association.weat(*sets, **dict(zip(masks, counts, strict=True)))
    alone = [association.weat(*sets, **dict(zip(masks, counts[:, i], strict=True))) for i in (0, 64)]
    torch.testing.assert_close(found[[0, 64]], torch.stack(alone), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_coverage(generator, device):
    # In one dimension the cosines are +-1: weat / 25 is a mean difference of known expectation.
    one = torch.ones(1, 1, device=device)
    x, y = (torch.randn(2000, 25, 1, generator=generator).to(device) + shift for shift in (0.3, 0.0))
    _, low, high = bootstrap_interval(association.weat, x, y, one, -one)
    shift = torch.special.ndtr(torch.tensor(0.3)).item()
    expected = 25 * 2 * (2 * shift - 1)
    assert 0.90 < ((low <= expected) & (expected <= high)).double().mean().item() < 0.98


def test_errors(device):
    x = torch.zeros(2, 3, device=device)
    for options, message in [
        (dict(replicates=0), "replicates: got 0, wanted an integer >= 1"),
        (dict(confidence=1), "confidence: got 1, wanted a number between 0 and 1"),
    ]:
        with pytest.raises(ValueError) as info:
            bootstrap_interval(association.ect, x, x, x, **options)
        assert str(info.value) == message
    with pytest.raises(TypeError) as info:
        bootstrap_interval(association.ECT(), x, x, x)
    assert str(info.value) == "metric: got a ECT, wanted a function; write metric.score_function()"
    with pytest.raises(TypeError) as info:
        bootstrap_interval(association.ect, x, x, x, b_mask=x)
    arguments = "x, y, a, x_mask, y_mask, a_mask"
    assert str(info.value) == f"b_mask: not a mask of this metric, whose arguments are {arguments}"
    with pytest.raises(ValueError) as info:
        bootstrap_interval(association.ect, x, x, x[:, :2])
    assert str(info.value) == "a: got 2 dimensions, wanted 3 as x has"
