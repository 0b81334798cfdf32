"""ML-EAT, its map, and LPBS against NumPy loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases.association import levels_of
from metric_cases import answer

from tensormetrics import Estimate
from tensormetrics.association import MLEAT, WEAT, Query, WordEmbeddingModel
from tensormetrics.association.functional import (
    WordSet,
    lpbs,
    ml_eat,
    permutation_p_value,
    plot_eat_map,
)

WORDS = ["he", "him", "his", "she", "her", "work", "wage", "pay", "home", "care"]
QUERY = Query([WORDS[:3], WORDS[3:5]], [WORDS[5:8], WORDS[8:]], ["m", "f"], ["career", "family"])


def random_sets():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (3, 2, 3, 2)]


def flat(levels):
    return torch.cat([part.flatten() for part in levels]).tolist()


def test_ml_eat_batch_of_targets_broadcasts_attributes():
    x, y, a, b = random_sets()
    several = torch.stack([x, 2 * x.flip(-1)])
    for levels, target in zip(zip(*ml_eat(several, y, a, b), strict=True), several, strict=True):
        assert flat(levels) == pytest.approx(flat(ml_eat(target, y, a, b)), rel=1e-12)


def test_ml_eat_empty_target_has_nan_mean_and_deviation():
    x, *others = random_sets()
    for levels in ml_eat(x[:0], *others), ml_eat(WordSet(x, torch.zeros(3, dtype=torch.bool)), *others):
        assert levels.mean[0].isnan().all() and levels.deviation[0].isnan().all()
        assert levels.mean[1].isfinite().all() and levels.deviation[1].isfinite().all()


def test_ml_eat_run_query_returns_levels_and_p_values():
    x, y, a, b = random_sets()
    model = WordEmbeddingModel.from_numpy(torch.cat([x, y, a, b]).numpy(), WORDS)
    result = answer(MLEAT(p_value=True), QUERY, model)
    expected = levels_of(*(word_set.numpy() for word_set in (x, y, a, b)))
    keys = ["ml_eat", "effect_size_x", "effect_size_y"]
    keys += [f"{name}_{pair}" for name in ("mean", "deviation") for pair in ("x_a", "x_b", "y_a", "y_b")]
    assert [result[key] for key in keys] == pytest.approx(expected, rel=1e-9) and result["result"] == result["ml_eat"]
    assert result["p_value"] == answer(WEAT(p_value=True), QUERY, model)["p_value"]
    units = [word_set / word_set.norm(dim=1, keepdim=True) for word_set in (x, y, a, b)]
    for target, key in zip(units, ("p_value_x", "p_value_y"), strict=False):
        u, v = (word_set @ target.mean(0) for word_set in units[2:])
        assert result[key] == permutation_p_value(u, v)


def test_plot_eat_map_draws_one_point_per_result_with_score():
    nothing, score = (Estimate(*torch.full((3,), number)) for number in (torch.nan, 1.0))
    answers = [
        replace(score, name="one", details={"effect_size_x": 1.0, "effect_size_y": -2.5}),
        replace(nothing, name="two", details={"effect_size_x": np.nan, "effect_size_y": 0.1}),
        replace(nothing, name="three", details={"reason": "lost"}),
    ]
    _, ax = plot_eat_map(answers, title="here")
    (point,) = ax.lines
    assert (point.get_xdata(), point.get_ydata()) == ([1.0], [-2.5]) and ax.get_title() == "here"
    assert ax.get_ylim() == pytest.approx((-2.75, 2.75)) and ax.get_xlim() == ax.get_ylim()
    fields = {text.get_text() for text in ax.texts}
    assert len(fields) == 9 and "x: a\ny: neither" in fields
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["one"]
    with pytest.raises(ValueError, match="^results: got one without the effect sizes of targets"):
        plot_eat_map([score])
    with pytest.raises(ValueError, match="^negligible: got -1, wanted a number >= 0$"):
        plot_eat_map(answers, negligible=-1)


def test_lpbs_arguments_of_wrong_types_raise():
    ints = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"^x: got torch.int64, wanted logarithms of probabilities; write x.log\(\)$"):
        lpbs(ints, ints, ints, ints)
    scores = torch.zeros(2)
    with pytest.raises(TypeError, match=r"^mask: got torch.int64, wanted torch.bool; write mask > 0$"):
        lpbs(scores, scores, scores, scores, mask=ints)
    with pytest.raises(TypeError, match="^mask: got a list, wanted a tensor"):
        lpbs(scores, scores, scores, scores, mask=[True, False])
