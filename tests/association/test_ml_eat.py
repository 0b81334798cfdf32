"""ML-EAT, its map, and LPBS, against loops in numpy."""

import numpy as np
import pytest
import torch
from cases.association import levels_of

from tensormetrics.association import (
    LPBS,
    MLEAT,
    WEAT,
    Query,
    WordEmbeddingModel,
    WordSet,
    lpbs,
    ml_eat,
    permutation_p_value,
    plot_eat_map,
    weat_effect_size,
)

WORDS = ["he", "him", "his", "she", "her", "work", "wage", "pay", "home", "care"]
QUERY = Query([WORDS[:3], WORDS[3:5]], [WORDS[5:8], WORDS[8:]], ["m", "f"], ["career", "family"])


def sets():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (3, 2, 3, 2)]


def flat(levels):
    return torch.cat([part.flatten() for part in levels]).tolist()


def test_levels_are_those_of_a_loop():
    expected = levels_of(*(side.numpy() for side in sets()))
    assert flat(ml_eat(*sets())) == pytest.approx(expected, rel=1e-12)
    assert ml_eat(*sets(), correction=0).effect == pytest.approx(weat_effect_size(*sets()))


def test_one_set_of_attributes_serves_many_targets():
    x, y, a, b = sets()
    many = torch.stack([x, 2 * x.flip(-1)])
    for levels, alone in zip(zip(*ml_eat(many, y, a, b), strict=True), many, strict=True):
        assert flat(levels) == pytest.approx(flat(ml_eat(alone, y, a, b)), rel=1e-12)


def test_what_is_masked_does_not_matter():
    wide = []
    for side in sets():
        vectors = torch.cat([side[:1], torch.full_like(side[:2], torch.nan), side[1:]])
        wide.append(WordSet(vectors, ~vectors.isnan().any(1)))
    assert flat(ml_eat(*wide)) == pytest.approx(flat(ml_eat(*sets())), rel=1e-12)


def test_no_words_have_neither_mean_nor_deviation():
    x, *others = sets()
    for levels in ml_eat(x[:0], *others), ml_eat(WordSet(x, torch.zeros(3, dtype=torch.bool)), *others):
        assert levels.mean[0].isnan().all() and levels.deviation[0].isnan().all()
        assert levels.mean[1].isfinite().all() and levels.deviation[1].isfinite().all()


def test_swapping():
    x, y, a, b = sets()
    levels, turned = ml_eat(x, y, a, b), ml_eat(y, x, b, a)
    assert turned.effect == pytest.approx(levels.effect) and turned.by_target.tolist() == pytest.approx(
        (-levels.by_target.flip(0)).tolist()
    )
    assert turned.mean.tolist() == levels.mean.flip(0, 1).tolist()


def test_a_query_in_words_and_its_p_values():
    x, y, a, b = sets()
    model = WordEmbeddingModel.from_numpy(torch.cat([x, y, a, b]).numpy(), WORDS)
    answer = MLEAT().run_query(QUERY, model, calculate_p_value=True)
    expected = levels_of(*(side.numpy() for side in (x, y, a, b)))
    keys = ["ml_eat", "effect_size_x", "effect_size_y"]
    keys += [f"{name}_{pair}" for name in ("mean", "deviation") for pair in ("x_a", "x_b", "y_a", "y_b")]
    assert [answer[key] for key in keys] == pytest.approx(expected, rel=1e-9) and answer["result"] == answer["ml_eat"]
    assert answer["p_value"] == WEAT().run_query(QUERY, model, calculate_p_value=True)["p_value"]
    units = [side / side.norm(dim=1, keepdim=True) for side in (x, y, a, b)]
    for target, key in zip(units, ("p_value_x", "p_value_y"), strict=False):
        u, v = (side @ target.mean(0) for side in units[2:])
        assert answer[key] == permutation_p_value(u, v)


def test_the_map_has_a_point_for_each_answer_with_a_score():
    answers = [
        {"query_name": "one", "effect_size_x": 1.0, "effect_size_y": -2.5},
        {"query_name": "two", "effect_size_x": np.nan, "effect_size_y": 0.1},
    ]
    (ax,) = plot_eat_map(answers, title="here").axes
    (point,) = ax.lines
    assert (point.get_xdata(), point.get_ydata()) == ([1.0], [-2.5]) and ax.get_title() == "here"
    assert ax.get_ylim() == pytest.approx((-2.75, 2.75)) and ax.get_xlim() == ax.get_ylim()
    fields = {text.get_text() for text in ax.texts}
    assert len(fields) == 9 and "x: a\ny: neither" in fields
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one"]
    with pytest.raises(ValueError, match="^results: got a result without effect_size_x, wanted results of MLEAT"):
        plot_eat_map([{"query_name": "weat"}])
    with pytest.raises(ValueError, match="^negligible: got -1, wanted a number >= 0$"):
        plot_eat_map(answers, negligible=-1)


def test_lpbs_by_hand():
    he, he_prior, she, she_prior = torch.tensor([[0.4, 0.2], [0.2, 0.2], [0.1, 0.3], [0.2, 0.2]]).log()
    expected = (np.log(0.4 / 0.2) - np.log(0.1 / 0.2) + np.log(1) - np.log(0.3 / 0.2)) / 2
    assert float(lpbs(he, he_prior, she, she_prior)) == pytest.approx(expected, rel=1e-6)
    assert float(lpbs(she, she_prior, he, he_prior)) == pytest.approx(-expected, rel=1e-6)
    metric = LPBS(replicates=100)
    for _ in range(3):  # fewer items give a warning
        metric.update(he[:1], he_prior[:1], she[:1], she_prior[:1])
        metric.update(he[1:], he_prior[1:], she[1:], she_prior[1:])
    metric.update(*(torch.tensor([-torch.inf]) for _ in range(4)))
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-6) and metric.not_finite == 1
    interval = metric.interval()
    assert interval.low <= interval.value <= interval.high


def test_probabilities_that_are_no_logarithms():
    ints = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"^x: got torch.int64, wanted logarithms of probabilities; write x.log\(\)$"):
        lpbs(ints, ints, ints, ints)
    scores = torch.zeros(2)
    with pytest.raises(TypeError, match=r"^mask: got torch.int64, wanted torch.bool; write mask > 0$"):
        lpbs(scores, scores, scores, scores, mask=ints)
    with pytest.raises(TypeError, match="^mask: got a list, wanted a tensor"):
        lpbs(scores, scores, scores, scores, mask=[True, False])
