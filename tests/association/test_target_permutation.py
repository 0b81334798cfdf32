"""p-values of RND and ECT against enumeration of all partitions of the targets."""

import functools
import itertools

import numpy as np
import pytest
import torch
from raising import raises
from scores import random_sets
from test_permutation import ALTERNATIVES, extreme

from tensormetrics.association import functional
from tensormetrics.association.functional import WordSet, group_permutation_p_value, target_permutation_p_value

METRICS = {
    "rnd": functional.rnd,
    "rnd_cos": functools.partial(functional.rnd, distance="cos"),
    "ect": functional.ect,
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


@every_metric
@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_target_permutation_exact_equals_enumeration(metric, alternative, generator, device):
    x, y, a = random_sets("xya", generator, device)
    words = torch.cat([x, y])
    scores = []
    for selected in itertools.combinations(range(7), 4):
        others = [n for n in range(7) if n not in selected]
        scores.append(metric(words[list(selected)], words[others], a).item())
    p = target_permutation_p_value(metric, x, y, a, alternative=alternative)
    expected = extreme(np.array(scores), metric(x, y, a).item(), alternative)
    assert p.item() == pytest.approx(expected, rel=1e-14) and p.dtype == torch.float64


@every_metric
def test_target_permutation_draws_agree_with_exact_and_batches_and_padding(metric, generator, device):
    tensors = random_sets("xya", generator, device, 2)
    approximate = functools.partial(target_permutation_p_value, metric, method="approximate", replicates=2000)
    p, exact = approximate(*tensors), target_permutation_p_value(metric, *tensors)
    assert ((p - exact).abs() <= 4 * (exact * (1 - exact) / 2000).sqrt() + 1e-3).all()
    assert torch.equal(p, torch.stack([approximate(*(t[i] for t in tensors)) for i in range(2)]))
    wide = [torch.nn.functional.pad(t, (0, 0, 1, 2), value=torch.nan) for t in tensors]
    masks = [torch.nn.functional.pad(torch.ones_like(t[..., 0], dtype=torch.bool), (1, 2)) for t in tensors]
    x, *rest = map(WordSet, wide, masks)
    assert torch.equal(approximate(x, *rest), p)
    x = x._replace(mask=x.mask & torch.tensor([[True], [False]], device=device))
    assert approximate(x, *rest).isnan().tolist() == [False, True]


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_group_permutation_of_two_groups_equals_weat(alternative, generator, device):
    x, a = random_sets("XA", generator, device)
    u, v = (functional.weat(s.unsqueeze(1), torch.zeros_like(s[:1]), *a) for s in x)
    exact = functional.permutation_p_value(u, v, alternative=alternative).item()
    p = group_permutation_p_value(x, a, alternative=alternative, replicates=4000).item()
    assert abs(p - exact) <= 4 * (exact * (1 - exact) / 4000) ** 0.5 + 1e-3


def test_group_permutation_with_masked_word_changes_its_batch_element_only(generator, device):
    x, a = random_sets("XA", generator, device, 2)
    p = group_permutation_p_value(x, a, replicates=500)
    mask = torch.ones(x.shape[:-1], dtype=torch.bool, device=device)
    mask[1, 0] = False
    masked = group_permutation_p_value(WordSet(x, mask), a, replicates=500)
    assert masked.isnan().tolist() == [False, True] and masked[0] == p[0]


def test_target_permutation_invalid_arguments_raise(device):
    x = torch.zeros(9, 3, device=device)
    limit = "wanted at most 20000; write method='approximate'"
    with raises(ValueError, f"method: got 'exact' with 48620 partitions, {limit}"):
        target_permutation_p_value(functional.rnd, x, x, x, method="exact")
    with pytest.raises(ValueError, match="^method: got 'exact' for cases that can only be drawn"):
        masked = WordSet(x, torch.ones(9, dtype=torch.bool, device=device))
        target_permutation_p_value(functional.rnd, masked, x, x, method="exact")
    with raises(ValueError, "a: got 2 dimensions, wanted 3 as x has"):
        target_permutation_p_value(functional.rnd, x, x, x[:, :2])
    advice = "wanted one of two separate sets; write RIPA(p_value=True).run_query(...)"
    with raises(TypeError, f"metric: got ripa, whose targets are pairs, {advice}"):
        target_permutation_p_value(functional.ripa, x, x, x)


@every_metric
def test_target_permutation_of_an_empty_target_is_nan(metric, device):
    x = torch.ones(3, 2, device=device)
    assert target_permutation_p_value(metric, x[:0], x, x).isnan()
    assert target_permutation_p_value(metric, x, x[:0], x).isnan()
