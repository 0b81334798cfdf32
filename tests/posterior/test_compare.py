import math

import numpy as np
import pytest
import torch
from known_statistics import KNOWN, X, Y, close
from raising import raises

from tensormetrics.posterior import plot_difference
from tensormetrics.posterior.comparison.pairwise import _score_interval_width, pairwise_compare

WITHOUT_RANDOM, WITH_RANDOM = KNOWN["pairwise"].values()
NUMBERS = [name for name in WITH_RANDOM if name != "direction"]


@pytest.mark.parametrize(
    ("options", "expected"), [({}, WITHOUT_RANDOM), ({"min_sig_diff": 0.05, "random_diff": Y - 0.4}, WITH_RANDOM)]
)
def test_pairwise_compare_golden_values_match(options, expected, device):
    comparison = pairwise_compare(
        (X - Y).to(device), **{k: getattr(v, "to", lambda d, v=v: v)(device) for k, v in options.items()}
    )
    assert comparison.direction == expected["direction"] and not comparison.paired
    for name in expected.keys() - {"direction"}:
        close(getattr(comparison, name), expected[name])


def test_score_interval_width_matches_golden_values(device):
    for key, expected in KNOWN["wilson"].items():
        p, n = (float(part.partition("=")[2]) for part in key.split(","))
        p, n = (torch.tensor(x, dtype=torch.float64, device=device) for x in (p, n))
        close(_score_interval_width(p, n), expected)
    certain = _score_interval_width(*torch.tensor([1.0, 10_000], dtype=torch.float64))
    assert 0 < certain < 1e-3  # no width is negative


@pytest.mark.parametrize("rope", [None, 0.0, 0.3])
def test_pairwise_compare_batch_equals_loop(rope, generator, device):
    diff = torch.randn(401, 6, generator=generator) + torch.linspace(-1, 1, 6)
    diff[:, 2] = 0
    diff[::3, 3] = torch.nan
    diff[5, 4] = torch.inf
    random = torch.randn(401, 6, generator=generator)
    names = [f"a{p}" for p in range(6)], [f"b{p}" for p in range(6)]
    batch = pairwise_compare(diff.to(device), 0.9, rope, random.to(device), torch.zeros(6), *names, "acc")
    for p in range(6):
        single = pairwise_compare(diff[:, p], 0.9, rope, random[:, p], 0.0, f"a{p}", f"b{p}", "acc")
        for name in NUMBERS:
            close(getattr(batch, name)[p], getattr(single, name))
        for name in "direction", "favours":
            assert getattr(batch, name)[p] == getattr(single, name)
        d = diff[:, p].double().numpy()
        d = d[~np.isnan(d)]
        m = rope if rope is not None else 0.1 * d[np.isfinite(d)].std()
        close(single.p_rope, (abs(d) <= m).mean())
        close(single.p_direction, max((d > 0).mean(), (d < 0).mean()))
        close(single.p_tie, (d == 0).mean())
        close(single.p_sig_neg, (d < -m).mean())


def test_template_sentence_describes_comparison(device):
    x = X.to(device)
    better = pairwise_compare(x + 1, 0.95, 0.05, x - 0.5, 1.0, "left", "mlp/b", "acc", paired=True)
    assert better.template_sentence() == (
        "acc of left minus that of mlp/b: median 1.2551 (observed 1.0000), 95.0% HDI [1.0000, 1.9107].\n"
        "P(left > mlp/b) = 100.00%, P(left < mlp/b) = 0.00%.\n"
        "P(|difference| <= 0.0500) = 0.00%, P(difference > 0.0500) = 100.00%, P(difference < -0.0500) = 0.00%.\n"
        "The odds of a difference that small are 0.0000 times those of two random guessers.\n"
        "Both were evaluated on the same items."
    )
    same = pairwise_compare(0 * x, 0.95, None, x, lhs_name="cnn/cnn")
    assert same.direction == "none" and same.favours is None and same.bf_rope.isnan() and same.p_rope == 1
    assert same.template_sentence() == (
        "metric of cnn minus that of right: median 0.0000, 95.0% HDI [0.0000, 0.0000].\n"
        "P(cnn > right) = 0.00%, P(cnn < right) = 0.00%, P(cnn = right) = 100.00%."
    )
    by_default = pairwise_compare(x - 0.5).template_sentence(3).splitlines()[2]
    assert " = " in by_default and "(default: a tenth of the standard deviation)" in by_default
    always = pairwise_compare(0.01 * x, 0.95, 1.0, x * 0 + 2)
    assert always.bf_rope == math.inf and "are inf times those of" in always.template_sentence()
    assert pairwise_compare(x, lhs_name="a", rhs_name="b", higher_is_better=False).favours == "b"
    assert pairwise_compare(x, lhs_name="a", rhs_name="b", higher_is_better=None).favours is None


def test_direction_probabilities_follow_names(device):
    diff = torch.tensor([-0.2] * 6 + [0.1] * 3 + [0.0] * 1, device=device)
    comparison = pairwise_compare(torch.stack([diff, -diff], -1), lhs_name=["b", "a"], rhs_name=["a", "b"])
    close(comparison.p_greater, [0.3, 0.6])
    close(comparison.p_less, [0.6, 0.3])
    close(comparison.p_tie, [0.1, 0.1])
    close(comparison.p_direction, [0.6, 0.6])  # the larger one, whoever is ahead


def test_template_sentence_zero_width_rope_is_omitted(device):
    x = X.to(device)
    text = pairwise_compare(x - x.mean(), 0.95, 0.0, x).template_sentence()
    assert "|difference|" not in text and "odds" not in text and len(text.splitlines()) == 2


def test_rope_includes_its_end_points():
    comparison = pairwise_compare(torch.tensor([-0.5, -0.25, 0.25, 0.5, 0.75]), min_sig_diff=0.5)
    close([comparison.p_sig_neg, comparison.p_rope, comparison.p_sig_pos], [0, 0.8, 0.2])


def test_pairwise_compare_invalid_options_raise():
    for value in -0.1, math.nan, "0.1":
        with raises(ValueError, f"min_sig_diff: got {value!r}, wanted None or a number >= 0"):
            pairwise_compare(X, min_sig_diff=value)
    for value in "0.9", 0:
        with raises(ValueError, f"ci_probability: got {value!r}, wanted a number in (0, 1]"):
            pairwise_compare(X, ci_probability=value)


def test_template_sentence_of_several_comparisons_raises():
    several = pairwise_compare(torch.stack([X - Y, Y - X], -1), lhs_name=["a", "b"], rhs_name=["b", "a"])
    for describe in (several.template_sentence, lambda: plot_difference(several)):
        with raises(ValueError, "got 2 comparisons, wanted one; write get_pairwise_comparison(...)"):
            describe()
