"""The scores against golden values, worked examples and loops in numpy; what all of them must have in common."""

import json
from pathlib import Path

import association_oracle as oracle
import numpy as np
import pytest
import torch

from tensormetrics import association
from tensormetrics.association import _sets
from tensormetrics.association._logistic import logistic_regression

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
CASES = {case["id"]: case for case in GOLDEN["cases"]}


def golden(metric: str) -> object:
    ids = [i for i, case in CASES.items() if case.get("metric") == metric and case["kind"] == "metric"]
    assert ids
    return pytest.mark.parametrize("case", [CASES[i] for i in ids], ids=ids)


def sets_of(case: dict, device: torch.device) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Target sets and attribute sets of a golden case, each (W, D)."""
    vectors = {word: torch.tensor(v, dtype=torch.float64) for word, v in GOLDEN["models"][case["model"]].items()}
    if case["options"]["normalize"]:
        vectors = {word: v / v.norm() for word, v in vectors.items()}
    sides = (
        [torch.stack([vectors[word] for word in words]).to(device) for words in case[side].values()]
        for side in ("targets", "attributes")
    )
    return tuple(sides)


def words_of(case: dict, side: str) -> list[str]:
    return [word for words in case[side].values() for word in words]


def padded(sets: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ragged groups as (G, W, D) with NaN padding, and their mask (G, W)."""
    width = max(map(len, sets))
    rows = [torch.cat([s, s.new_full((width - len(s), s.shape[1]), torch.nan)]) for s in sets]
    mask = [torch.arange(width, device=s.device) < len(s) for s in sets]
    return torch.stack(rows), torch.stack(mask)


def agrees(value: torch.Tensor, expected: object, rtol: float = 1e-10) -> bool:
    np.testing.assert_allclose(value.cpu().numpy(), expected, rtol=rtol, atol=1e-12)
    return value.dtype == torch.float64


@golden("WEAT")
def test_golden_weat(case, device):
    targets, attributes = sets_of(case, device)
    expected = case["expected"]
    assert agrees(association.weat(*targets, *attributes), expected["weat"])
    assert agrees(association.weat_effect_size(*targets, *attributes), expected["effect_size"])
    assert agrees(association.weat_effect_size(*targets, *attributes, 1), expected["effect_size_correction_1"])
    if "s_by_word" in expected:  # the sum over a target of one word is its own association
        for words, target in zip(expected["s_by_word"].values(), targets, strict=True):
            scores = association.weat(target.unsqueeze(1), torch.zeros_like(target[:1]), *attributes)
            assert agrees(scores, list(words.values()))


@golden("RND")
def test_golden_rnd(case, device):
    targets, attributes = sets_of(case, device)
    distance, expected = case["options"]["distance"], case["expected"]
    score, by_word = association.rnd(*targets, *attributes, distance, per_word=True)
    assert agrees(score, expected["rnd"])
    assert agrees(by_word, [expected["distance_by_word"][word] for word in words_of(case, "attributes")])
    if distance == "cos":
        assert torch.equal(association.rnd(*targets, *attributes, "cos_similarity"), -score)


@golden("RIPA")
def test_golden_ripa(case, device):
    targets, attributes = sets_of(case, device)
    normalize = case["options"].get("normalize_direction", True)
    score, products = association.ripa(*targets, *attributes, normalize, per_word=True)
    words = [case["expected"]["word_values"][word] for word in words_of(case, "attributes")]
    assert agrees(score, case["expected"]["ripa"])
    assert agrees(products.mean(-1), [word["mean"] for word in words])
    assert agrees(products.std(-1, correction=0), [word["std"] for word in words])


@golden("ECT")
def test_golden_ect(case, device):
    targets, attributes = sets_of(case, device)
    assert agrees(association.ect(*targets, *attributes), case["expected"]["ect"])


@golden("MAC")
def test_golden_mac(case, device):
    targets, attributes = sets_of(case, device)
    groups, mask = padded(attributes)
    score, by_word = association.mac(torch.cat(targets), groups, a_mask=mask, per_word=True)
    expected = [list(word.values()) for t in case["expected"]["targets_eval"].values() for word in t.values()]
    assert agrees(score, case["expected"]["mac"])
    assert agrees(by_word, expected)


@golden("ExampleMetric")
def test_golden_example_metric(case, device):
    targets, attributes = sets_of(case, device)
    assert agrees(association.example_metric(*targets, *attributes), case["expected"]["em"])


@golden("SCWEAT")
def test_golden_sc_weat(case, device):
    targets, attributes = sets_of(case, device)
    sizes = association.sc_weat(*targets, *attributes, case["options"]["correction"])
    assert agrees(sizes, list(case["expected"]["effect_size_by_word"].values()))
    assert agrees(sizes.mean(), case["expected"]["sc_weat"])


@golden("RNSB")
def test_golden_rnsb(case, device):
    (a, b), targets = sets_of(case, device)[1], sets_of(case, device)[0]
    options = case["options"].get("penalize_intercept", True)
    score, p = association.rnsb(torch.cat(targets), a, b, 1.0, options, per_word=True)
    assert agrees(score, case["expected"]["rnsb"], rtol=1e-7)
    assert agrees(p, list(case["expected"]["negative_sentiment_probabilities"].values()), rtol=1e-7)


@golden("DirectBias")
def test_golden_direct_bias(case, device):
    (t,), attributes = sets_of(case, device)
    options = {name: case["options"][name] for name in ("strictness", "n_components", "direction")}
    score, by_word = association.direct_bias(t, torch.stack(attributes), **options, per_word=True)
    assert agrees(score, case["expected"]["direct_bias"])
    assert agrees(by_word, list(case["expected"]["bias_by_word"].values()))


@golden("SAME")
def test_golden_same(case, device):
    (t,), attributes = sets_of(case, device)
    score, terms = association.same(t, torch.stack(attributes), case["options"]["weighting"], per_word=True)
    expected = case["expected"]
    assert agrees(score, expected["same"])
    assert agrees(terms.abs().sum(-1), list(expected["same_by_word"].values()))
    if "skew" in expected:
        assert agrees(terms.mean(), expected["skew"])
        assert agrees(terms.std(correction=0), expected["stereotype"])


@golden("GWEAT")
def test_golden_gweat(case, device):
    (x, x_mask), (a, a_mask) = map(padded, sets_of(case, device))
    score, terms = association.gweat(x, a, x_mask=x_mask, a_mask=a_mask, per_group=True)
    assert agrees(score, case["expected"]["gweat"])
    assert agrees(terms, list(case["expected"]["by_group"].values()))


# A row for every score: the function, its loops in numpy, and its sets; p p are pairs, A is groups.
SCORES = {
    "weat": (association.weat, oracle.weat, "xyab"),
    "weat_effect_size": (association.weat_effect_size, oracle.weat_effect_size, "xyab"),
    "sc_weat": (association.sc_weat, oracle.sc_weat, "wab"),
    "rnd": (association.rnd, oracle.rnd, "xya"),
    "rnd_cos": (lambda x, y, a, **m: association.rnd(x, y, a, "cos", **m), lambda *s: oracle.rnd(*s, "cos"), "xya"),
    "ripa": (association.ripa, oracle.ripa, "ppa"),
    "ect": (association.ect, oracle.ect, "xya"),
    "mac": (association.mac, oracle.mac, "tA"),
    "example_metric": (association.example_metric, oracle.example_metric, "xya"),
    "gweat": (association.gweat, oracle.gweat, "XA"),
    "same": (association.same, oracle.same, "tG"),
    "direct_bias": (association.direct_bias, oracle.direct_bias, "tP"),
    "direct_bias_3": (
        lambda *s, **m: association.direct_bias(*s, 0.5, 3, **m),
        lambda *s: oracle.direct_bias(*s, 0.5, 3),
        "tP",
    ),
    "direct_bias_mean_difference": (
        lambda *s, **m: association.direct_bias(*s, direction="mean_difference", **m),
        lambda *s: oracle.direct_bias(*s, direction="mean_difference"),
        "tP",
    ),
    "rnsb": (association.rnsb, oracle.rnsb, "tab"),
    "rnsb_free_intercept": (
        lambda *s, **m: association.rnsb(*s, 0.7, False, **m),
        lambda *s: oracle.rnsb(*s, 0.7, False),
        "tab",
    ),
}
every_score = pytest.mark.parametrize(("score", "expected", "sets"), SCORES.values(), ids=SCORES.keys())
SIZES = {"x": 4, "y": 3, "a": 5, "b": 6, "p": 3, "t": 4, "w": 3}
GROUPS = {"A": (2, 3, 5), "X": (2, 4, 5), "G": (3, 4, 5), "P": (2, 4, 5)}
MASK = {"p": "pair_mask", "A": "a_mask", "X": "x_mask", "G": "groups_mask", "P": "tuple_mask"}


def random_sets(sets: str, generator: torch.Generator, device: torch.device, *lead: int) -> list[torch.Tensor]:
    shapes = [GROUPS.get(s) or (SIZES[s], 5) for s in sets]
    return [torch.randn(*lead, *shape, generator=generator, dtype=torch.float64).to(device) for shape in shapes]


def precision(sets: str) -> float:
    return 1e-5 if sets == "tab" else 1e-10  # scipy's minimum of the logistic loss is no better


def mask_shape(tensor: torch.Tensor, name: str) -> tuple[int, ...]:
    return (*tensor.shape[:-3], tensor.shape[-2]) if name == "P" else tensor.shape[:-1]


@every_score
def test_loops_in_numpy(score, expected, sets, generator, device):
    for _ in range(5):
        tensors = random_sets(sets, generator, device)
        assert agrees(
            score(*tensors), expected(*(t.cpu().numpy() for t in tensors)), 1e-5 if sets == "tab" else 1e-10
        )  # the oracle's minimum is no better


@every_score
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_arithmetic_is_float64_whatever_is_read(score, expected, sets, dtype, generator, device):
    tensors = [t.to(dtype) for t in random_sets(sets, generator, device)]
    assert agrees(
        score(*tensors), expected(*(t.cpu().double().numpy() for t in tensors)), 1e-5 if sets == "tab" else 1e-10
    )  # the oracle's minimum is no better
    assert torch.equal(score(tensors[0], *(t.double() for t in tensors[1:])), score(*tensors))


@every_score
def test_leading_dimensions_broadcast(score, expected, sets, generator, device):
    tensors = random_sets(sets, generator, device, 2, 1)
    tensors[-1] = random_sets(sets, generator, device, 3)[-1]
    value = score(*tensors)
    for i, j in np.ndindex(2, 3):
        single = score(*(t[i, 0] for t in tensors[:-1]), tensors[-1][j])
        assert agrees(value[i, j], single.cpu().numpy(), rtol=1e-12)


@every_score
def test_an_empty_set_costs_its_own_element_only(score, expected, sets, generator, device):
    tensors = random_sets(sets, generator, device, 2)
    for n, name in enumerate(sets):
        mask = torch.ones(mask_shape(tensors[n], name), dtype=torch.bool, device=device)
        mask[1] = False
        value = score(*tensors, **{MASK.get(name, f"{name}_mask"): mask})
        assert value[1].isnan().all()
        assert torch.equal(value[0], score(*tensors)[0])


@every_score
def test_unmasked_nan_propagates(score, expected, sets, generator, device):
    tensors = random_sets(sets, generator, device, 2)
    tensors[-1][1].fill_(torch.nan)
    value = score(*tensors)
    assert value[1].isnan().all() and agrees(value[0], score(*(t[0] for t in tensors)).cpu().numpy())


@every_score
def test_order_of_words_and_rotations_do_not_matter(score, expected, sets, generator, device):
    tensors = random_sets(sets, generator, device)
    rotation = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64)).Q.to(device)
    value = score(*tensors).cpu()
    rotated = score(*(t @ rotation for t in tensors))
    np.testing.assert_allclose(rotated.cpu(), value, rtol=1e-10)
    flipped = score(*(t.flip(-2) for t in tensors))
    np.testing.assert_allclose(flipped.flip(-1).cpu() if flipped.ndim else flipped.cpu(), value, rtol=1e-10)


@every_score
def test_lengths_of_single_vectors_do_not_matter_to_cosines(score, expected, sets, generator, device):
    if sets in ("xya", "ppa", "tab"):
        pytest.skip("reads vectors at their length")
    tensors = random_sets(sets, generator, device)
    scaled = [t * (10 * torch.rand(t.shape[:-1], generator=generator).to(device)).unsqueeze(-1) for t in tensors]
    assert agrees(score(*scaled), score(*tensors).cpu().numpy())


@pytest.mark.parametrize("name", ["weat", "rnd", "ripa", "example_metric"])
def test_swapping_sides_changes_the_sign(name, generator, device):
    score, _, sets = SCORES[name]
    x, y, *rest = random_sets(sets, generator, device)
    assert agrees(score(y, x, *rest), -score(x, y, *rest).cpu().numpy())
    if name == "weat":
        assert agrees(score(x, y, *reversed(rest)), -score(x, y, *rest).cpu().numpy())


@every_score
def test_counts_are_repeated_words(score, expected, sets, generator, device):
    tensors = random_sets(sets, generator, device)
    for n, name in enumerate(sets):
        count = torch.tensor([2, *[1] * (tensors[n].shape[-2] - 1)], device=device)
        partners = [m for m, other in enumerate(sets) if other == name]
        repeated = [torch.cat([t[..., :1, :], t], -2) if m in partners else t for m, t in enumerate(tensors)]
        count = count.expand(mask_shape(tensors[n], name))
        value = score(*tensors, **{MASK.get(name, f"{name}_mask"): count})
        again = score(*repeated)
        np.testing.assert_allclose(value.cpu(), (again[1:] if name == "w" else again).cpu(), rtol=1e-12)


@every_score
def test_gradients(score, expected, sets, generator, device):
    tensors = [t.requires_grad_() for t in random_sets(sets, generator, device, 2)]
    if score is association.ect or sets == "tab":
        assert not score(*tensors).requires_grad
    else:
        assert torch.autograd.gradcheck(score, tensors)


@every_score
def test_gradients_of_zero_and_masked_vectors_are_zero(score, expected, sets, generator, device):
    if score is association.ect or sets == "tab":
        pytest.skip("has no gradient")
    x, *rest = random_sets(sets, generator, device)
    x[..., 0, :], x[..., -1, :] = 0, torch.nan
    if sets[:2] == "pp":
        rest[0][0] = 0  # a pair without a direction
    mask = (torch.arange(x.shape[-2], device=device) < x.shape[-2] - 1).expand(x.shape[:-1])
    value = score(x.requires_grad_(), *rest, **{MASK.get(sets[0], f"{sets[0]}_mask"): mask})
    (gradient,) = torch.autograd.grad(value.nansum(), x)
    assert gradient.isfinite().all() and (gradient[..., -1, :] == 0).all() and (gradient[..., 1:-1, :] != 0).any()
    if sets != "xya":  # those average the vectors themselves
        assert (gradient[..., 0, :] == 0).all()


def test_a_pair_of_equal_vectors_does_not_count(device):
    e1, e2 = torch.eye(2, dtype=torch.float64, device=device)
    x, y, a = torch.stack([e1, e2]), torch.stack([e2, e2]), torch.stack([e1, e1 + e2])
    score, products = association.ripa(x, y, a, per_word=True)
    assert torch.equal(score, association.ripa(x[:1], y[:1], a))
    assert products[:, 1].isnan().all()
    assert association.ripa(y, y, a).isnan()


def test_no_variation_has_no_effect_size(device):
    x = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64, device=device)
    a, b = torch.eye(3, dtype=torch.float64, device=device)[:2].unsqueeze(1)
    assert association.weat_effect_size(x.repeat(3, 1), x.repeat(7, 1) * 0.1, a, b).isnan()
    assert association.weat_effect_size(x, x[:0], a, b, 1).isnan()
    assert association.weat(x.repeat(3, 1), x.repeat(7, 1), a, b) != 0
    assert association.sc_weat(x[:, [0, 0, 0]], a, a).isnan().all()


def test_ect_needs_two_words_and_two_values(generator, device):
    x, y, a = random_sets("xya", generator, device)
    assert association.ect(x, y, a[:1]).isnan()
    assert association.ect(x, y, a[:1].repeat(3, 1)).isnan()
    assert association.ect(x, x * 3, a * torch.arange(1, 6, device=device).unsqueeze(-1)) == 1


def test_per_word_values_are_nan_where_no_word_is(generator, device):
    x, y, a = random_sets("xya", generator, device, 2)
    mask = torch.tensor([[True] * 5, [True, False, True, True, False]], device=device)
    _, differences = association.rnd(x, y, a, a_mask=mask, per_word=True)
    assert torch.equal(differences.isnan(), ~mask)
    _, products = association.ripa(x[:, :3], y, a, a_mask=mask, pair_mask=mask[:, :3], per_word=True)
    assert torch.equal(products.isnan(), ~(mask.unsqueeze(-1) & mask[:, :3].unsqueeze(-2)))
    _, distances = association.mac(a, torch.stack([x, x], 1), t_mask=mask, per_word=True)
    assert torch.equal(distances.isnan(), ~mask.unsqueeze(-1).expand(2, 5, 2))
    assert torch.equal(association.sc_weat(a, x, y, w_mask=mask).isnan(), ~mask)


def test_gweat_of_two_groups_is_half_the_mean_difference(generator, device):
    x, a = random_sets("XA", generator, device)
    weat = association.weat(*x, *a) / x.shape[1]
    assert agrees(association.gweat(x, a), weat.cpu().numpy() / 2)


def test_same_of_equal_groups_is_zero(generator, device):
    t, groups = random_sets("tG", generator, device)
    groups = groups[:1].expand(3, -1, -1) * torch.tensor([1.0, 2.0, 3.0], device=device)[:, None, None]
    for weighting in ("length", "unit"):
        assert association.same(t, groups, weighting) == 0
    line = torch.tensor([[[1.0]], [[-1.0]], [[2.0]]], device=device)  # more directions than dimensions
    assert association.same(line[0], line) == 1


def test_direct_bias_has_no_more_components_than_the_tuples(device):
    e1, e2 = torch.eye(3, dtype=torch.float64, device=device)[:2]
    groups = torch.stack([torch.stack([e1, e2, e1]), torch.stack([-e1, -e2, e1])])
    t = torch.ones(1, 3, dtype=torch.float64, device=device)
    assert agrees(association.direct_bias(t, groups, 2, 2), 2 / 3)
    assert association.direct_bias(t, groups, 2, 3).isnan()
    mask = torch.tensor([True, False, True], device=device)
    assert agrees(association.direct_bias(t, groups, 2, 1, tuple_mask=mask), 1 / 3)
    assert association.direct_bias(t, groups, 2, 2, tuple_mask=mask).isnan()


@pytest.mark.parametrize("scale", [1e3, 1, 1e-3])
@pytest.mark.parametrize("penalize_intercept", [True, False])
@pytest.mark.parametrize("dims", [3, 40])
def test_rnsb_finds_the_minimum(scale, penalize_intercept, dims, generator, device):
    def sets(*sizes: int) -> list[torch.Tensor]:
        return [scale * torch.randn(3, n, dims, generator=generator, dtype=torch.float64).to(device) for n in sizes]

    for a, b in (sets(9, 12), sets(1, 1), (sets(5)[0] + 9 * scale, sets(7)[0] - 9 * scale)):  # the last: separable
        w, c = logistic_regression(*_sets.read(a=(a, None), b=(b, None)), 1.0, penalize_intercept)
        x = torch.cat([a, b], -2)
        y = torch.cat([a.new_ones(a.shape[-2]), -a.new_ones(b.shape[-2])])
        pull = y * torch.sigmoid(-y * ((x * w.unsqueeze(-2)).sum(-1) + c.unsqueeze(-1)))
        assert (w - (pull.unsqueeze(-1) * x).sum(-2)).abs().max() <= 1e-9
        assert (c * penalize_intercept - pull.sum(-1)).abs().max() <= 1e-9


def test_rnsb_that_cannot_be_fitted_is_nan(generator, device, monkeypatch):
    t, a, b = random_sets("tab", generator, device)
    monkeypatch.setattr("tensormetrics.association._logistic.MOST_STEPS", 2)
    score, p = association.rnsb(t, a, b, per_word=True)
    assert score.isnan() and p.isnan().all()


def test_errors(device):
    x = torch.zeros(2, 3, device=device)
    raises = [
        (TypeError, "x: got torch.int64, wanted a floating dtype; write x.float()", dict(x=x.long())),
        (ValueError, "y: got shape (3,), wanted (..., W, D)", dict(y=x[0])),
        (ValueError, "a: got 2 dimensions, wanted 3 as x has", dict(a=x[:, :2])),
        (TypeError, "b_mask: got torch.float32, wanted torch.bool; write b_mask > 0", dict(b_mask=x[:, 0])),
        (ValueError, "b_mask: got shape (3,), wanted (..., 2)", dict(b_mask=x[0] > 0)),
        (
            ValueError,
            "leading dimensions do not broadcast: (2,) of x, (3,) of y, () of a, () of b",
            dict(x=x.expand(2, 2, 3), y=x.expand(3, 2, 3)),
        ),
    ]
    for error, message, change in raises:
        with pytest.raises(error) as info:
            association.weat(**{**dict(x=x, y=x, a=x, b=x), **change})
        assert str(info.value) == message
    for correction in (2, True, None):
        with pytest.raises(ValueError) as info:
            association.weat_effect_size(x, x, x, x, correction)
        assert str(info.value) == f"correction: got {correction!r}, wanted 0 or 1"
    with pytest.raises(ValueError) as info:
        association.rnd(x, x, x, "manhattan")
    assert str(info.value) == "distance: got 'manhattan', wanted one of 'norm', 'cos', 'cos_similarity'"
    with pytest.raises(ValueError) as info:
        association.ripa(x, x[:1], x)
    assert str(info.value) == "x, y: got (2, 3) and (1, 3), wanted pairs by position: equal (P, D)"
    groups = torch.stack([x, x])
    for call, message in [
        (lambda: association.gweat(groups, groups[:1]), "x, a: got shapes (2, 2, 3) and (1, 2, 3), "),
        (lambda: association.gweat(groups[:1], groups[:1]), "x, a: got shapes (1, 2, 3) and (1, 2, 3), "),
    ]:
        with pytest.raises(ValueError) as info:
            call()
        assert str(info.value) == message + "wanted equally many groups, at least 2: (..., G, W, D)"
    for call, message in [
        (lambda: association.same(x, groups, "none"), "weighting: got 'none', wanted one of 'length', 'unit'"),
        (lambda: association.same(x, groups[:1]), "groups: got shape (1, 2, 3), wanted (..., G, W, D) with G >= 2"),
        (
            lambda: association.direct_bias(x, groups[:1]),
            "groups: got shape (1, 2, 3), wanted (..., G, P, D) with G >= 2",
        ),
        (
            lambda: association.direct_bias(x, groups, direction="up"),
            "direction: got 'up', wanted one of 'pca', 'mean_difference'",
        ),
        (
            lambda: association.direct_bias(x, groups, n_components=2, direction="mean_difference"),
            "direction: got 'mean_difference' for 2 groups and 2 components, wanted 2 and 1",
        ),
        (
            lambda: association.direct_bias(x, groups, n_components=3),
            "n_components: got 3, wanted at most 2 for 2 groups of 2 words with 3 dimensions",
        ),
        (lambda: association.direct_bias(x, groups, 0), "strictness: got 0, wanted a number > 0"),
        (
            lambda: association.direct_bias(x, groups, tuple_mask=torch.ones(3, dtype=torch.bool, device=device)),
            "tuple_mask: got shape (3,), wanted (..., 2)",
        ),
        (lambda: association.rnsb(x, x, x, 0.0), "C: got 0.0, wanted a number > 0"),
    ]:
        with pytest.raises(ValueError) as info:
            call()
        assert str(info.value) == message
    with pytest.raises(ValueError) as info:
        association.mac(x, x)
    assert str(info.value) == "a: got shape (2, 3), wanted (..., G, W, D)"
    if device.type == "cuda":
        with pytest.raises(ValueError, match="devices differ: x on cuda"):
            association.weat(x, x.cpu(), x, x)
