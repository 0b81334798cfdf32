"""Edge cases of single scores computed by hand, and errors of all scores."""

import pytest
import torch
from cases import association_oracle as oracle
from metric_cases import answer
from raising import raises
from scores import agrees, random_sets

from tensormetrics import association
from tensormetrics.association import functional
from tensormetrics.association.functional import WordSet
from tensormetrics.association.metrics._logistic import logistic_regression
from tensormetrics.association.sets import word_sets


def test_ripa_pair_of_equal_vectors_is_excluded(device):
    e1, e2 = torch.eye(2, dtype=torch.float64, device=device)
    x, y, a = torch.stack([e1, e2]), torch.stack([e2, e2]), torch.stack([e1, e1 + e2])
    score, products = functional.ripa(x, y, a, per_word=True)
    assert torch.equal(score, functional.ripa(x[:1], y[:1], a))
    assert products[:, 1].isnan().all()
    assert functional.ripa(y, y, a).isnan()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_scores_groups_equal_up_to_rounding_have_no_direction(dtype, generator, device):
    t, v = (torch.randn(n, 50, generator=generator).to(device, dtype) for n in (20, 4))
    scaled = torch.stack([v, 3 * v])
    for groups in (v.expand(2, 4, 50), v.expand(3, 4, 50), scaled):
        assert functional.direct_bias(t, groups).isnan()
        assert functional.direct_bias(t, groups, 2, 2).isnan()
    for groups in (v.expand(2, 4, 50), scaled):
        score, by_word = functional.direct_bias(t, groups, direction="mean_difference", per_word=True)
        assert score.isnan() and by_word.isnan().all()
        assert functional.same(t, groups) == 0
    unit = torch.nn.functional.normalize(scaled.double(), dim=-1)
    exact = torch.nn.functional.normalize(torch.stack([v, 2 * v]).double(), dim=-1)  # doubling rounds nothing
    for x, y in (exact, *([unit] if dtype == torch.float64 else [])):
        assert functional.ripa(x, y, t).isnan() and functional.ripa(x, y, t, False).isnan()
    near = v.clone()
    near[:, 0] *= 1 + torch.finfo(dtype).eps  # the next representable number
    assert (near != v).any(-1).all()
    assert functional.ripa(v, near, t).isnan()


def test_scores_short_directions_above_rounding_are_used(generator, device):
    t, v, w = (torch.randn(n, 50, generator=generator, dtype=torch.float64).to(device) for n in (20, 4, 4))
    near = torch.stack([v, v + 1e-9 * w])
    assert functional.direct_bias(t, near) > 0 and functional.direct_bias(t, near, direction="mean_difference") > 0
    expected = (t @ torch.nn.functional.normalize(-w, dim=-1).T).mean()
    torch.testing.assert_close(functional.ripa(*near, t), expected, rtol=0, atol=1e-5)
    one = torch.stack([v[:2], torch.stack([v[0] + w[0], v[1]])])  # the second tuple has equal vectors
    assert functional.direct_bias(t, one) > 0 and functional.direct_bias(t, one.float(), 1, 2).isnan()


def test_ripa_normalized_parallel_pairs_have_no_score(device):
    words = [f"{name}{i}" for name in "xya" for i in range(4)]
    v = torch.randn(8, 50, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    model = association.WordEmbeddingModel.from_tensor(torch.cat([v[:4], 3 * v[:4], v[4:]]).to(device), words)
    query = association.Query([words[:4], words[4:8]], [words[8:]])
    result = answer(association.RIPA(normalize=True, p_value=True), query, model)
    assert all(torch.tensor(float(result[key])).isnan() for key in ("result", "ripa", "p_value"))


def test_effect_size_without_variation_is_nan(device):
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64, device=device)
    a, b = torch.eye(3, dtype=torch.float64, device=device)[:2].unsqueeze(1)
    assert functional.weat_effect_size(x.repeat(3, 1), x.repeat(7, 1) * 0.1, a, b).isnan()
    assert functional.weat_effect_size(x, x[:0], a, b, 1).isnan()
    assert functional.weat(x.repeat(3, 1), x.repeat(7, 1), a, b) != 0
    assert functional.sc_weat(x[:, [0, 0, 0]], a, a).isnan().all()


def test_effect_size_rounding_is_no_variation(generator, device):
    """Multiples of one vector have one association, though their cosines differ in the last bits."""
    v, a, b = (torch.randn(n, 50, generator=generator, dtype=torch.float64).to(device) for n in (1, 6, 7))
    x, y = (v * torch.tensor(scales, device=device).double()[:, None] for scales in ([1, 3, 7, 0.1], [0.7, 11, 13]))
    unit = torch.nn.functional.normalize
    vectors = torch.cat([x, y])
    deviation = (unit(vectors, dim=-1) @ (unit(a, dim=-1).mean(0) - unit(b, dim=-1).mean(0))).std()
    assert 0 < deviation < 1e-15
    mask = torch.tensor([True, True, True, False], device=device)
    assert functional.weat_effect_size(x, y, a, b).isnan()
    assert functional.weat_effect_size(WordSet(x, mask), y, a, b, 1).isnan()
    assert functional.sc_weat(v, x, y).isnan() and functional.sc_weat(v, x, -y).isfinite()


@pytest.mark.parametrize("correction", [0, 1])
def test_effect_size_correction_counts_unmasked_words(correction, generator, device):
    x, y, a, b = random_sets("xyab", generator, device)
    wide = torch.nn.functional.pad(x, (0, 0, 1, 2), value=torch.nan)
    mask = torch.nn.functional.pad(torch.ones(len(x), dtype=torch.bool, device=device), (1, 2))
    sets = [s.cpu().numpy() for s in (x, y, a, b)]
    actual = functional.weat_effect_size(WordSet(wide, mask), y, a, b, correction)
    assert agrees(actual, oracle.weat_effect_size(*sets, correction))
    actual = functional.sc_weat(y, WordSet(wide, mask), b, correction)
    assert agrees(actual, oracle.sc_weat(sets[1], sets[0], sets[3], correction))
    assert agrees(
        association.WEAT(correction=correction, return_effect_size=True).to(device)(WordSet(wide, mask), y, a, b),
        oracle.weat_effect_size(*sets, correction),
    )


def test_ect_fewer_than_two_distinct_values_give_nan(generator, device):
    x, y, a = random_sets("xya", generator, device)
    assert functional.ect(x, y, a[:1]).isnan()
    assert functional.ect(x, y, a[:1].repeat(3, 1)).isnan()
    assert functional.ect(x, x * 3, a * torch.arange(1, 6, device=device).unsqueeze(-1)) == 1


def test_per_word_values_of_masked_words_are_nan(generator, device):
    x, y, a = random_sets("xya", generator, device, 2)
    mask = torch.tensor([[True] * 5, [True, False, True, True, False]], device=device)
    _, differences = functional.rnd(x, y, WordSet(a, mask), per_word=True)
    assert torch.equal(differences.isnan(), ~mask)
    _, products = functional.ripa(WordSet(x[:, :3], mask[:, :3]), y, WordSet(a, mask), per_word=True)
    assert torch.equal(products.isnan(), ~(mask.unsqueeze(-1) & mask[:, :3].unsqueeze(-2)))
    _, distances = functional.mac(WordSet(a, mask), torch.stack([x, x], 1), per_word=True)
    assert torch.equal(distances.isnan(), ~mask.unsqueeze(-1).expand(2, 5, 2))
    assert torch.equal(functional.sc_weat(WordSet(a, mask), x, y).isnan(), ~mask)


def test_ripa_pairs_with_a_masked_word_are_excluded(generator, device):
    x, y, a = random_sets("ppa", generator, device)
    first, second = (torch.tensor(mask, device=device) for mask in ([True, True, False], [False, True, True]))
    x, y = x.where(first[:, None], torch.nan), y.where(second[:, None], torch.nan)
    score = functional.ripa(WordSet(x, first), WordSet(y, second), a)
    assert agrees(score, functional.ripa(x[1:2], y[1:2], a).item())


def test_ripa_word_paired_with_two_others_counts_as_two_pairs(generator, device):
    x, y, a = random_sets("ppa", generator, device)
    words, others = torch.tensor([[0, 0, 1], [0, 1, 2]], device=device)
    p = association.RIPA().p_values(WordSet(x, words=words), WordSet(y, words=others), a)["p_value"]
    assert p == association.RIPA().p_values(x, y, a)["p_value"]
    p = association.RIPA().p_values(*(WordSet(s, words=words) for s in (x, y)), a)["p_value"]
    assert 4 * p == round(4 * p.item())  # 2^2 patterns of signs


def test_same_of_equal_groups_is_zero(generator, device):
    t, groups = random_sets("tG", generator, device)
    groups = groups[:1].expand(3, -1, -1) * torch.tensor([1.0, 2.0, 3.0], device=device)[:, None, None]
    for weighting in ("length", "unit"):
        assert functional.same(t, groups, weighting) == 0
    line = torch.tensor([[[1.0]], [[-1.0]], [[2.0]]], device=device)  # more directions than dimensions
    assert functional.same(line[0], line) == 1


def test_same_mean_over_words_equals_score(generator, device):
    t, groups = random_sets("tG", generator, device)
    mask = torch.tensor([True, False, True, True], device=device)
    score, by_word, signed = functional.same(WordSet(t, mask), groups, per_word=True, terms=True)
    assert by_word.shape == (4,) and signed.shape == (4, 2)
    assert torch.equal(by_word.isnan(), ~mask) and torch.equal(signed.isnan(), ~mask[:, None].expand(4, 2))
    assert agrees(by_word.nanmean(), score.item()) and agrees(signed.abs().sum(-1)[mask], by_word[mask].cpu().numpy())
    assert torch.equal(functional.same(WordSet(t, mask), groups, terms=True)[1][mask], signed[mask])


def test_direct_bias_more_components_than_tuples_allow_gives_nan(device):
    e1, e2 = torch.eye(3, dtype=torch.float64, device=device)[:2]
    groups = torch.stack([torch.stack([e1, e2, e1]), torch.stack([-e1, -e2, e1])])
    t = torch.ones(1, 3, dtype=torch.float64, device=device)
    assert agrees(functional.direct_bias(t, groups, 2, 2), 2 / 3)
    assert functional.direct_bias(t, groups, 2, 3).isnan()
    mask = torch.tensor([[True, False, True], [True, True, True]], device=device)  # a tuple lacks its first word
    groups = WordSet(groups.where(mask[..., None], torch.nan), mask)
    assert agrees(functional.direct_bias(t, groups, 2, 1), 1 / 3)
    assert functional.direct_bias(t, groups, 2, 2).isnan()


@pytest.mark.parametrize("scale", [1e3, 1, 1e-3])
@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("dims", [3, 40])
def test_rnsb_solution_has_zero_gradient(scale, penalize_intercept, dims, generator, device):
    def sets(*sizes: int) -> list[torch.Tensor]:
        return [scale * torch.randn(3, n, dims, generator=generator, dtype=torch.float64).to(device) for n in sizes]

    for a, b in (
        sets(9, 12),
        sets(1, 1),
        (sets(5)[0] + 9 * scale, sets(7)[0] - 9 * scale),
    ):  # the last classes are separable
        w, c = logistic_regression(*word_sets.read(a=a, b=b), 1.0, penalize_intercept)
        x = torch.cat([a, b], -2)
        y = torch.cat([a.new_ones(a.shape[-2]), -a.new_ones(b.shape[-2])])
        pull = y * torch.sigmoid(-y * ((x * w.unsqueeze(-2)).sum(-1) + c.unsqueeze(-1)))
        assert (w - (pull.unsqueeze(-1) * x).sum(-2)).abs().max() <= 1e-9
        assert (c * penalize_intercept - pull.sum(-1)).abs().max() <= 1e-9


@pytest.mark.parametrize("penalize_intercept", [True, False])
def test_rnsb_large_coefficients_are_finite(penalize_intercept, generator, device):
    t, a, b = 1e3 * torch.randn(3, 5, 25, 49, generator=generator, dtype=torch.float64).to(device)
    assert functional.rnsb(t, a, b, 1e4, penalize_intercept).isfinite().all()


def test_rnsb_without_convergence_is_nan(generator, device, monkeypatch):
    t, a, b = random_sets("tab", generator, device)
    monkeypatch.setattr("tensormetrics.association.metrics._logistic.MAX_ITERATIONS", 2)
    score, p = functional.rnsb(t, a, b, per_word=True)
    assert score.isnan() and p.isnan().all()


def test_scores_invalid_arguments_raise(device):
    x = torch.zeros(2, 3, device=device)
    groups = torch.stack([x, x])

    def weat(**change):
        functional.weat(**{"x": x, "y": x, "a": x, "b": x, **change})

    for name, value, kind, message in (
        ("x", x.long(), TypeError, "x: got torch.int64, wanted a floating dtype; write x.float()"),
        ("x", x.tolist(), TypeError, "x: got a list, wanted a tensor; write torch.as_tensor(x)"),
        ("b", x.tolist(), TypeError, "b: got a list, wanted a tensor; write torch.as_tensor(b)"),
        ("a", WordSet(x, [True]), TypeError, "a.mask: got a list, wanted a tensor; write torch.as_tensor(a.mask)"),
        ("b", WordSet(x, x[:, 0]), TypeError, "b.mask: got torch.float32, wanted torch.bool; write b.mask > 0"),
        ("b", WordSet(x, x[0] > 0), ValueError, "b.mask: got shape (3,), wanted (..., 2)"),
        ("y", x[0], ValueError, "y: got shape (3,), wanted (..., W, D)"),
        ("a", x[:, :2], ValueError, "a: got 2 dimensions, wanted 3 as x has"),
    ):
        with raises(kind, message):
            weat(**{name: value})
    with raises(ValueError, "leading dimensions do not broadcast: (2,) of x, (3,) of y"):
        weat(x=x.expand(2, 2, 3), y=x.expand(3, 2, 3))
    with raises(ValueError, "x, y: got (2, 3) and (1, 3), wanted pairs by position: equal (P, D)"):
        functional.ripa(x, x[:1], x)
    for few in groups, groups[:1]:
        message = f"x, a: got shapes {tuple(few.shape)} and (1, 2, 3), wanted equally many groups, at least 2: "
        with raises(ValueError, f"{message}(..., G, W, D)"):
            functional.gweat(few, groups[:1])
    with raises(ValueError, "groups: got shape (1, 2, 3), wanted (..., G, W, D) with G >= 2"):
        functional.same(x, groups[:1])
    two, mask = {"n_components": 2, "direction": "mean_difference"}, torch.ones(3, dtype=torch.bool, device=device)
    for sets, options, message in (
        (groups[:1], {}, "groups: got shape (1, 2, 3), wanted (..., G, P, D) with G >= 2"),
        (groups, two, "direction: got 'mean_difference' for 2 groups and 2 components, wanted 2 and 1"),
        (
            groups,
            {"n_components": 3},
            "n_components: got 3, wanted at most 2 for 2 groups of 2 words with 3 dimensions",
        ),
        (WordSet(groups, mask), {}, "groups.mask: got shape (3,), wanted (..., 2, 2)"),
    ):
        with raises(ValueError, message):
            functional.direct_bias(x, sets, **options)
    with raises(ValueError, "a: got shape (2, 3), wanted (..., G, W, D)"):
        functional.mac(x, x)
    if device.type == "cuda":
        with pytest.raises(ValueError, match="devices differ: x on cuda"):
            functional.weat(x, x.cpu(), x, x)
