"""Random-effects combination, and WEAT over pools of contexts."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from cases import association_oracle as oracle
from metric_cases import answer
from raising import raises

from tensormetrics import association
from tensormetrics.association import functional
from tensormetrics.association.metrics.ceat import draw_contexts
from tensormetrics.association.resampling.random import stream
from tensormetrics.association.sets import word_sets
from tensormetrics.uncertainty import Estimate

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())["cases"]
P_VALUE_KEYS = {"greater": "p_right", "less": "p_left", "two-sided": "p_two_sided"}


def parts_of(estimate: Estimate) -> list[torch.Tensor]:
    """Return the effect, its standard error, tau2 and p-value."""
    return [estimate.value, *(estimate.details[name] for name in ("se", "tau2", "p_value"))]


def pools(generator: torch.Generator, device: torch.device, *batch_shape: int) -> list[torch.Tensor]:
    shapes = [(5, 3, 4), (4, 6, 4), (3, 2, 4), (3, 1, 4)]
    return [torch.randn(*batch_shape, *shape, generator=generator, dtype=torch.float64).to(device) for shape in shapes]


@pytest.mark.parametrize("case", [case for case in GOLDEN if case["kind"] == "random_effects"], ids=lambda c: c["id"])
def test_golden_random_effects(case, device):
    e, v = (torch.tensor(case[name], dtype=torch.float64, device=device) for name in ("effects", "variances"))
    expected = case["expected"]
    for alternative, name in P_VALUE_KEYS.items():
        got = functional.random_effects(e, v, alternative=alternative)
        values = [expected["ceat"], expected["standard_error"], expected["tau2"], expected[name]]
        np.testing.assert_allclose(torch.stack(parts_of(got)).cpu(), values, rtol=1e-10, atol=1e-12)
        ends = scipy.stats.norm(expected["ceat"], expected["standard_error"]).interval(0.9)
        estimate = functional.random_effects(e, v, confidence=0.9)
        np.testing.assert_allclose([float(estimate.low), float(estimate.high)], ends, rtol=1e-9, atol=1e-12)


def test_random_effects_batches_equal_loop(generator, device):
    e, v = torch.randn(3, 1, 7, generator=generator), torch.rand(2, 7, generator=generator) + 0.1
    got = functional.random_effects(e.to(device), v.to(device))
    for i, j in np.ndindex(3, 2):
        expected = oracle.random_effects(e[i, 0].double().numpy(), v[j].double().numpy())
        np.testing.assert_allclose([part[i, j].item() for part in parts_of(got)[:3]], expected, rtol=1e-12)
    one = functional.random_effects(e[..., :1].to(device), v[..., :1].to(device))
    assert (one.details["tau2"] == 0).all() and torch.equal(
        one.value, e[..., :1].to(device).double().expand(3, 2, 1)[..., 0]
    )
    e.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda e, v: parts_of(functional.random_effects(e, v))[:3], (e.double(), v.double())
    )


@pytest.mark.parametrize("variance", ["sample", "standard"])
def test_ceat_equals_meta_analysis_of_weat_on_sampled_contexts(variance, generator, device):
    tensors = pools(generator, device)
    sampled_sets = []
    sets = word_sets.read(*"xyab", **dict(zip("xyab", tensors, strict=True)))
    for name, pool in zip("xyab", sets, strict=True):
        sampled_sets.append(draw_contexts(pool, stream(5, f"contexts/{name}"), 0, 20).vectors.cpu().numpy())
    effects, variances = [], []
    for x, y, a, b in zip(*sampled_sets, strict=True):
        s = [oracle.association(w, a, b) for w in (*x, *y)]
        effects.append(oracle.weat_effect_size(x, y, a, b, 1))
        variances.append(np.var(s, ddof=1) if variance == "sample" else 9 / 20 + effects[-1] ** 2 / 18)
    got = functional.ceat(*tensors, samples=20, seed=5, variance=variance)
    expected = oracle.random_effects(np.array(effects), np.array(variances))
    np.testing.assert_allclose([part.item() for part in parts_of(got)[:3]], expected, rtol=1e-10)


def test_draw_contexts_samples_valid_contexts_uniformly(device):
    mask = torch.tensor(
        [[True, False, True, True], [False, False, False, False], [True, True, True, True]], device=device
    )
    vectors = torch.arange(4.0, device=device).expand(3, 4).unsqueeze(-1).masked_fill(~mask.unsqueeze(-1), torch.nan)
    (pool,) = word_sets.read("x", x=functional.WordSet(vectors, mask))
    sampled = draw_contexts(pool, 1, 0, 6000)
    assert sampled.weights.tolist() == [[1, 0, 1]]
    for word in (0, 2):
        counts = torch.bincount(sampled.vectors[:, word, 0].long(), minlength=4).cpu()
        deviation = counts / 6000 - mask[word].cpu() / mask[word].sum().cpu()
        assert deviation.abs().max() < 4 * 0.5 / 6000**0.5 and not counts[~mask[word].cpu()].any()


def test_ceat_depends_on_seed_but_not_on_chunks_and_masks(generator, device, monkeypatch):
    tensors = pools(generator, device, 2)
    got = functional.ceat(*tensors, samples=30)
    assert not torch.equal(got.value, functional.ceat(*tensors, samples=30, seed=1).value)
    wide = torch.nn.functional.pad(tensors[0], (0, 0, 0, 2, 0, 1), value=torch.nan)
    mask = torch.nn.functional.pad(torch.ones(5, 3, dtype=torch.bool, device=device), (0, 2, 0, 1))
    masked = functional.ceat(functional.WordSet(wide, mask), *tensors[1:], samples=30)
    assert not masked.value.isnan().any()
    monkeypatch.setattr("tensormetrics.association.resampling.draws.BUDGET", 500)
    chunked = functional.ceat(*tensors, samples=30)
    np.testing.assert_allclose(torch.stack(parts_of(chunked)).cpu(), torch.stack(parts_of(got)).cpu(), rtol=1e-10)


def test_ceat_gradients_equal_finite_differences(generator, device):
    tensors = [t[:2, :2, :3].requires_grad_() for t in pools(generator, device)]
    assert torch.autograd.gradcheck(lambda *sets: parts_of(functional.ceat(*sets, samples=5))[:3], tensors)
    assert not functional.ceat(*tensors, samples=5).details["p_value"].requires_grad


def test_random_effects_of_unequal_shapes_raises():
    with raises(ValueError, "v: got shape (2,), wanted (..., 3)"):
        functional.random_effects(torch.zeros(3), torch.zeros(2))


def test_ceat_run_query_equals_function(generator, device):
    names = [f"{s}{i}" for s, n in zip("xyab", (5, 4, 3, 3), strict=True) for i in range(n)]
    vectors = [word for pool in pools(generator, device) for word in pool]
    model = association.WordEmbeddingModel.from_contexts(dict(zip(names, vectors, strict=True)))
    query = association.Query(*([[n for n in names if n[0] == s] for s in letters] for letters in ("xy", "ab")))
    result = answer(association.CEAT(samples=30, seed=4, alternative="two-sided"), query, model)
    pools_of_sets = [
        [model.vectors[model.rows(word)] for word in words]
        for words in sum((query.target_sets, query.attribute_sets), [])
    ]
    expected = functional.ceat(*map(torch.stack, pools_of_sets), samples=30, seed=4, alternative="two-sided")
    got = [result[key] for key in ("ceat", "standard_error", "tau2", "p_value_random_effects")]
    np.testing.assert_allclose(got, torch.stack(parts_of(expected)).cpu(), rtol=1e-10)
    assert result["samples"] == 30 and result["result"] == result["ceat"]
    lost = association.Query([["no"], ["x0"]], query.attribute_sets)
    assert association.CEAT().run_query(lost, model).value.isnan()


@pytest.mark.parametrize("test_type", ["greater", "less", "two-sided"])
def test_ceat_p_value_permutes_words_with_all_their_contexts(test_type, generator, device):
    """The p-value equals that of WEAT, which represents a word by the mean over its rows."""
    counts = {f"{name}{i}": 1 + (3 * i + ord(name)) % 4 for name in "xyab" for i in range(4)}
    contexts = {word: torch.randn(count, 5, generator=generator).to(device) for word, count in counts.items()}
    model = association.WordEmbeddingModel.from_contexts(contexts)
    sets = [[word for word in counts if word[0] == name] for name in "xyab"]
    query, options = association.Query(sets[:2], sets[2:]), {"p_value": True, "alternative": test_type}
    result = answer(association.CEAT(samples=5, **options), query, model)
    assert result["p_value"] == pytest.approx(answer(association.WEAT(**options), query, model)["p_value"], abs=1e-12)
    assert result["p_value"] != result["p_value_random_effects"]


def test_ceat_arguments_unequal_context_counts_are_padded(device):
    rows = {"x": 3, "y": 1, "z": 2, "a": 1, "b": 4}
    model = association.WordEmbeddingModel.from_contexts(
        {word: torch.randn(count, 3, device=device) for word, count in rows.items()}
    )
    index = model.index_query(association.Query([["x", "y"], ["z"]], [["a"], ["b"]]))
    sets = association.CEAT().arguments(index, model.vectors)
    assert [tuple(s.values.shape) for s in sets] == [(2, 3, 3), (1, 2, 3), (1, 1, 3), (1, 4, 3)]
    assert sets[0].mask.tolist() == [[True] * 3, [True, False, False]]
    assert torch.equal(sets[0].values[0], model.vectors[model.rows("x")])


def test_ceat_forward_accumulates_effects_of_samples(generator, device):
    sets = [torch.randn(9, n, 4, generator=generator).to(device) for n in (5, 4, 3, 3)]
    metric = association.CEAT(variance="standard").to(device)
    effects = torch.cat([metric(*(s[:4] for s in sets)), metric(*(s[4:] for s in sets))])
    assert torch.equal(effects, functional.weat_effect_size(*sets, 1))
    expected = functional.random_effects(effects, 9 / 20 + effects.square() / 18).value
    torch.testing.assert_close(metric.compute(), expected)
    metric.update(*(torch.ones_like(s) for s in sets))  # excluded, as nothing varies
    torch.testing.assert_close(metric.compute(), expected)


def contextual_model(seed=0, **means):
    """Return a model and a query with 8 + 8 target words and 2 x 4 attribute words of 1 to 5 contexts each."""
    generator = torch.Generator().manual_seed(seed)
    contexts = {}
    for name, count in zip("xyab", (8, 8, 4, 4), strict=True):
        for i in range(count):
            word = torch.randn(6, generator=generator, dtype=torch.float64) + means.get(name, 0)
            contexts[f"{name}{i}"] = word + torch.randn(1 + i % 5, 6, generator=generator, dtype=torch.float64)
    sets = [[f"{name}{i}" for i in range(count)] for name, count in zip("xyab", (8, 8, 4, 4), strict=True)]
    return association.WordEmbeddingModel.from_contexts(contexts, "model"), association.Query(sets[:2], sets[2:])


def test_ceat_interval_equals_that_of_effect_size_over_words():
    model, query = contextual_model(x=1, a=1)
    result = answer(association.CEAT(samples=50, replicates=300, seed=3), query, model)
    weat = answer(association.WEAT(return_effect_size=True, correction=1, replicates=300, seed=3), query, model)
    assert result["effect_size"] == pytest.approx(weat["effect_size"], rel=1e-12)
    assert result["low"] == pytest.approx(min(weat["low"], result["ceat"]), rel=1e-9)
    assert result["high"] == pytest.approx(max(weat["high"], result["ceat"]), rel=1e-9)
    assert result["low"] < result["effect_size"] < result["high"]
    made = association.CEAT(samples=50, replicates=300, seed=3)
    assert answer(made, query, model) == result
    both = answer(association.CEAT(samples=50, replicates=300, seed=3, p_value=True), query, model)
    assert "p_value" in both and both["low"] == result["low"]
    ((cell,),) = association.run_queries(made, [query], [model]).cells
    assert [*map(float, cell)] == [result["ceat"], result["low"], result["high"]]


def test_ceat_interval_of_streamed_samples_raises(generator):
    metric = association.CEAT(replicates=20)
    sets = torch.randn(4, 6, 5, generator=generator)
    assert metric(*sets).isfinite()
    with pytest.raises(NotImplementedError, match="^CEAT: its items are samples of contexts, not words"):
        metric.interval()
