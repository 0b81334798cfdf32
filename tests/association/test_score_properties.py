"""Properties of all scores."""

import numpy as np
import pytest
import torch
from scores import SCORES, agrees, every_score, precision, random_sets, with_mask
from torch.utils._python_dispatch import TorchDispatchMode

from tensormetrics.association import functional
from tensormetrics.association.functional import WordSet
from tensormetrics.association.sets import word_sets


@every_score
def test_score_equals_numpy_oracle(score, expected, sets, generator, device):
    for _ in range(5):
        tensors = random_sets(sets, generator, device)
        assert agrees(score(*tensors), expected(*(t.cpu().numpy() for t in tensors)), precision(sets))


@every_score
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_score_of_lower_precision_is_computed_in_float64(score, expected, sets, dtype, generator, device):
    tensors = [t.to(dtype) for t in random_sets(sets, generator, device)]
    assert agrees(score(*tensors), expected(*(t.cpu().double().numpy() for t in tensors)), precision(sets))
    assert torch.equal(score(tensors[0], *(t.double() for t in tensors[1:])), score(*tensors))


@every_score
def test_score_leading_dimensions_broadcast(score, expected, sets, generator, device):
    tensors = random_sets(sets, generator, device, 2, 1)
    tensors[-1] = random_sets(sets, generator, device, 3)[-1]
    value = score(*tensors)
    for i, j in np.ndindex(2, 3):
        single = score(*(t[i, 0] for t in tensors[:-1]), tensors[-1][j])
        assert agrees(value[i, j], single.cpu().numpy(), rtol=1e-12)


@pytest.mark.parametrize("limits", [(0, 0), (0, 10**9), (10**9, 10**9)])
def test_weat_size_limits_of_plans_change_no_value(limits, generator, device, monkeypatch):
    """Small sets are concatenated, large ones are read one set at a time."""
    sets = [t.requires_grad_() for t in random_sets("xyab", generator, device, 2)]
    results = []
    for small, large in (limits, (word_sets.SMALL, word_sets.LARGE)):
        monkeypatch.setattr(word_sets, "SMALL", small)
        monkeypatch.setattr(word_sets, "LARGE", large)
        scores = [score(*(t[0] for t in sets)) for score in (functional.weat, functional.weat_effect_size)]
        scores += [functional.weat(*sets), functional.weat_effect_size(*sets, correction=1)]
        total = sum(score.sum() for score in scores)
        results.append([*(score.flatten() for score in scores), *torch.autograd.grad(total, sets)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


class NoProductOfMatrices(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.overloadpacket not in {getattr(torch.ops.aten, name) for name in ("mm", "bmm", "addmm", "baddbmm")}
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["weat", "weat_effect_size", "sc_weat", "rnd", "rnd_cos", "ect", "mac"])
def test_small_scores_call_no_matrix_product(name, generator):
    """On a CPU the BLAS starts its threads for a matrix product of any size, and waits for them."""
    score, _, sets = SCORES[name]
    tensors = random_sets(sets, generator, torch.device("cpu"))
    with NoProductOfMatrices():
        score(*tensors)


def test_scores_in_chunks_equal_those_of_full_batch(generator, monkeypatch):
    sets = torch.randn(4, 7, 2, 3, 5, generator=generator)
    mask = torch.rand(7, 2, 3, generator=generator) > 0.3
    calls = (
        lambda: functional.weat(WordSet(sets[0], mask), *sets[1:3], WordSet(sets[3], mask)),
        lambda: functional.weat_effect_size(WordSet(sets[0], mask), *sets[1:], 1),
        lambda: functional.weat(*sets[:3], sets[3][0]),  # broadcasting prevents chunks
        lambda: functional.rnsb(WordSet(sets[0], mask), *sets[1:3]),
        lambda: functional.rnsb(*sets[:3], per_word=True)[1],
    )
    expected_scores = [call() for call in calls]
    monkeypatch.setattr("tensormetrics.association.sets.marks.CHUNK", sets.numel() // 12)
    for call, expected in zip(calls, expected_scores, strict=True):
        torch.testing.assert_close(call(), expected, rtol=1e-12, atol=1e-14, equal_nan=True)


def test_weat_equal_attributes_give_zero(generator, device):
    x, y, a, _ = random_sets("xyab", generator, device, 2)
    assert not functional.weat(x, y, a, a).any() and functional.weat(x[0], y[0], a[0], a[0]) == 0
    assert functional.weat_effect_size(x, y, a, a).isnan().all()


def test_weat_effect_size_without_variation_has_zero_gradient(device):
    x = torch.tensor([[1.0, 2.0]], device=device).repeat(3, 1).requires_grad_()
    a, b = torch.eye(2, device=device).unsqueeze(1)
    effect = functional.weat_effect_size(x, x, a, b)
    assert effect.isnan()
    effect.backward()
    assert not x.grad.any()
    effects = torch.func.vmap(lambda x: functional.weat_effect_size(x, x, a, b))
    assert not torch.func.grad(lambda x: effects(x).sum())(x.detach().repeat(2, 1, 1)).any()


@every_score
def test_score_empty_set_affects_only_its_batch_element(score, expected, sets, generator, device):
    tensors = random_sets(sets, generator, device, 2)
    for n, name in enumerate(sets):
        mask = torch.ones(tensors[n].shape[:-1], dtype=torch.bool, device=device)
        mask[1] = False
        value = score(*with_mask(sets, tensors, name, mask))
        assert value[1].isnan().all()
        assert agrees(value[0], score(*tensors)[0].cpu().numpy(), rtol=1e-12)


@every_score
def test_score_order_of_words_and_rotations_change_nothing(score, expected, sets, generator, device):
    tensors = random_sets(sets, generator, device)
    rotation = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64)).Q.to(device)
    value = score(*tensors).cpu()
    rotated = score(*(t @ rotation for t in tensors))
    np.testing.assert_allclose(rotated.cpu(), value, rtol=1e-10)
    flipped = score(*(t.flip(-2) for t in tensors))
    np.testing.assert_allclose(flipped.flip(-1).cpu() if flipped.ndim else flipped.cpu(), value, rtol=1e-10)


@every_score
def test_score_of_cosines_lengths_of_vectors_change_nothing(score, expected, sets, generator, device):
    if sets in ("xya", "ppa", "tab"):
        pytest.skip("reads vectors at their length")
    tensors = random_sets(sets, generator, device)
    scaled = [t * (10 * torch.rand(t.shape[:-1], generator=generator).to(device)).unsqueeze(-1) for t in tensors]
    assert agrees(score(*scaled), score(*tensors).cpu().numpy())


@pytest.mark.parametrize("name", ["weat", "rnd", "ripa"])
def test_score_swapped_targets_or_attributes_change_the_sign(name, generator, device):
    score, _, sets = SCORES[name]
    x, y, *rest = random_sets(sets, generator, device)
    assert agrees(score(y, x, *rest), -score(x, y, *rest).cpu().numpy())
    if name == "weat":
        assert agrees(score(x, y, *reversed(rest)), -score(x, y, *rest).cpu().numpy())


@every_score
def test_score_counts_equal_repeated_words(score, expected, sets, generator, device):
    tensors = random_sets(sets, generator, device)
    for n, name in enumerate(sets):
        count = torch.tensor([2, *[1] * (tensors[n].shape[-2] - 1)], device=device)
        partners = [m for m, other in enumerate(sets) if other == name]
        repeated = [torch.cat([t[..., :1, :], t], -2) if m in partners else t for m, t in enumerate(tensors)]
        value = score(*with_mask(sets, tensors, name, count.expand(tensors[n].shape[:-1])))
        again = score(*repeated)
        np.testing.assert_allclose(value.cpu(), (again[1:] if name == "w" else again).cpu(), rtol=1e-12)


@every_score
def test_score_gradients_equal_finite_differences(score, expected, sets, generator, device):
    tensors = [t.requires_grad_() for t in random_sets(sets, generator, device, 2)]
    if score is functional.ect or sets == "tab":
        assert not score(*tensors).requires_grad
    else:
        assert torch.autograd.gradcheck(score, tensors)


@every_score
def test_score_gradients_of_zero_and_masked_vectors_are_zero(score, expected, sets, generator, device):
    if score is functional.ect or sets == "tab":
        pytest.skip("has no gradient")
    x, *rest = random_sets(sets, generator, device)
    x[..., 0, :], x[..., -1, :] = 0, torch.nan
    if sets[:2] == "pp":
        rest[0][0] = 0  # a pair without a direction
    mask = (torch.arange(x.shape[-2], device=device) < x.shape[-2] - 1).expand(x.shape[:-1])
    value = score(*with_mask(sets, [x.requires_grad_(), *rest], sets[0], mask))
    (gradient,) = torch.autograd.grad(value.nansum(), x)
    assert gradient.isfinite().all() and (gradient[..., -1, :] == 0).all() and (gradient[..., 1:-1, :] != 0).any()
    if sets != "xya":  # these scores average unnormalized vectors
        assert (gradient[..., 0, :] == 0).all()
