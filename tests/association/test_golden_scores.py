"""Scores of association against golden values."""

import json
from pathlib import Path

import pytest
import torch
from scores import agrees

from tensormetrics import association

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


CASES = {case["id"]: case for case in GOLDEN["cases"]}


def golden(metric: str) -> object:
    ids = [i for i, case in CASES.items() if case.get("metric") == metric and case["kind"] == "metric"]
    assert ids
    return pytest.mark.parametrize("case", [CASES[i] for i in ids], ids=ids)


def sets_of(case: dict, device: torch.device) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the target sets and attribute sets of a golden case, each (W, D)."""
    vectors = {word: torch.tensor(v, dtype=torch.float64) for word, v in GOLDEN["models"][case["model"]].items()}
    if case["options"]["normalize"]:
        vectors = {word: v / v.norm() for word, v in vectors.items()}
    word_sets = (
        [torch.stack([vectors[word] for word in words]).to(device) for words in case[role].values()]
        for role in ("targets", "attributes")
    )
    return tuple(word_sets)


def words_of(case: dict, role: str) -> list[str]:
    return [word for words in case[role].values() for word in words]


def padded(sets: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ragged groups as (G, W, D) with NaN padding, and their mask (G, W)."""
    width = max(map(len, sets))
    rows = [torch.cat([s, s.new_full((width - len(s), s.shape[1]), torch.nan)]) for s in sets]
    mask = [torch.arange(width, device=s.device) < len(s) for s in sets]
    return torch.stack(rows), torch.stack(mask)


@golden("WEAT")
def test_weat_equals_golden_values(case, device):
    targets, attributes = sets_of(case, device)
    expected = case["expected"]
    assert agrees(association.weat(*targets, *attributes), expected["weat"])
    assert agrees(association.weat_effect_size(*targets, *attributes), expected["effect_size"])
    assert agrees(association.weat_effect_size(*targets, *attributes, 1), expected["effect_size_correction_1"])
    if "s_by_word" in expected:  # the sum over a target of one word is the association of the word
        for words, target in zip(expected["s_by_word"].values(), targets, strict=True):
            scores = association.weat(target.unsqueeze(1), torch.zeros_like(target[:1]), *attributes)
            assert agrees(scores, list(words.values()))


@golden("RND")
def test_rnd_equals_golden_values(case, device):
    targets, attributes = sets_of(case, device)
    distance, expected = case["options"]["distance"], case["expected"]
    score, by_word = association.rnd(*targets, *attributes, distance, per_word=True)
    assert agrees(score, expected["rnd"])
    assert agrees(by_word, [expected["distance_by_word"][word] for word in words_of(case, "attributes")])
    if distance == "cos":
        assert torch.equal(association.rnd(*targets, *attributes, "cos_similarity"), -score)


@golden("RIPA")
def test_ripa_equals_golden_values(case, device):
    targets, attributes = sets_of(case, device)
    normalize = case["options"].get("normalize_direction", True)
    score, products = association.ripa(*targets, *attributes, normalize, per_word=True)
    words = [case["expected"]["word_values"][word] for word in words_of(case, "attributes")]
    assert agrees(score, case["expected"]["ripa"])
    assert agrees(products.mean(-1), [word["mean"] for word in words])
    assert agrees(products.std(-1, correction=0), [word["std"] for word in words])


@golden("ECT")
def test_ect_equals_golden_values(case, device):
    targets, attributes = sets_of(case, device)
    assert agrees(association.ect(*targets, *attributes), case["expected"]["ect"])


@golden("MAC")
def test_mac_equals_golden_values(case, device):
    targets, attributes = sets_of(case, device)
    groups, mask = padded(attributes)
    score, by_word = association.mac(torch.cat(targets), association.WordSet(groups, mask), per_word=True)
    expected = [list(word.values()) for t in case["expected"]["targets_eval"].values() for word in t.values()]
    assert agrees(score, case["expected"]["mac"])
    assert agrees(by_word, expected)


@golden("SCWEAT")
def test_sc_weat_equals_golden_values(case, device):
    targets, attributes = sets_of(case, device)
    sizes = association.sc_weat(*targets, *attributes, case["options"]["correction"])
    assert agrees(sizes, list(case["expected"]["effect_size_by_word"].values()))
    assert agrees(sizes.mean(), case["expected"]["sc_weat"])


@golden("RNSB")
def test_rnsb_equals_golden_values(case, device):
    (a, b), targets = sets_of(case, device)[1], sets_of(case, device)[0]
    options = case["options"].get("penalize_intercept", True)
    score, p = association.rnsb(torch.cat(targets), a, b, 1.0, options, per_word=True)
    assert agrees(score, case["expected"]["rnsb"], rtol=1e-7)
    assert agrees(p, list(case["expected"]["negative_sentiment_probabilities"].values()), rtol=1e-7)


@golden("DirectBias")
def test_direct_bias_equals_golden_values(case, device):
    (t,), attributes = sets_of(case, device)
    options = {name: case["options"][name] for name in ("strictness", "n_components", "direction")}
    score, by_word = association.direct_bias(t, torch.stack(attributes), **options, per_word=True)
    assert agrees(score, case["expected"]["direct_bias"])
    assert agrees(by_word, list(case["expected"]["bias_by_word"].values()))


@golden("SAME")
def test_same_equals_golden_values(case, device):
    (t,), attributes = sets_of(case, device)
    score, terms = association.same(t, torch.stack(attributes), case["options"]["weighting"], terms=True)
    expected = case["expected"]
    assert agrees(score, expected["same"])
    assert agrees(terms.abs().sum(-1), list(expected["same_by_word"].values()))
    if "skew" in expected:
        assert agrees(terms.mean(), expected["skew"])
        assert agrees(terms.std(correction=0), expected["stereotype"])


@golden("GWEAT")
def test_gweat_equals_golden_values(case, device):
    x, a = (association.WordSet(*padded(sets)) for sets in sets_of(case, device))
    score, terms = association.gweat(x, a, per_group=True)
    assert agrees(score, case["expected"]["gweat"])
    assert agrees(terms, list(case["expected"]["by_group"].values()))
