"""Ratings from pairwise judgments, against counts, win rates of single pairs and simulated battles."""

import math
import pickle

import numpy as np
import pytest
import scipy.stats
import torch

from tensormetrics import compare, interval
from tensormetrics.core.resampling import units
from tensormetrics.uncertainty import Ratings, UncertaintyWarning
from tensormetrics.uncertainty.battles import outcomes
from tensormetrics.uncertainty.functional import bradley_terry

NAMES = ["gpt", "llama", "mistral", "qwen"]
ELO = 400 / math.log(10)


def simulate_battles(generator, strengths, battles, nu=0.6, first_ahead=0.0):
    """Draw battles of random pairs from Davidson's model; `first_ahead` is added to the strength of the first."""
    count = len(strengths)
    first = torch.randint(count, (battles,), generator=generator)
    second = (first + torch.randint(1, count, (battles,), generator=generator)) % count
    half = (strengths[first] - strengths[second] + first_ahead) / 2
    odds = torch.stack([(-half).exp(), torch.full_like(half, nu), half.exp()], 1)
    return first, second, torch.multinomial(odds, 1, generator=generator)[:, 0].double() / 2


@pytest.fixture
def battles(generator):
    return simulate_battles(generator, torch.linspace(-1, 1, 4).double(), 400)


@pytest.fixture
def ratings(battles):
    metric = Ratings(NAMES)
    metric.update(*battles)
    return metric


def count_outcomes(first, second, outcome):
    wins, ties = torch.zeros(2, 4, 4)
    for i, j, score in zip(first.tolist(), second.tolist(), outcome.tolist(), strict=True):
        if score == 0.5:
            ties[i, j] += 1
            ties[j, i] += 1
        else:
            winner, loser = (i, j) if score == 1 else (j, i)
            wins[winner, loser] += 1
    return wins, ties


def values(result):
    return torch.stack([*result.values()]) if isinstance(result, dict) else result


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("prior_sd", [None, 1.0, 3.0])
def test_ratings_equal_the_strengths_of_counted_outcomes(battles, ties, prior_sd):
    metric = Ratings(NAMES, ties=ties, prior_sd=prior_sd, scale="logit")
    metric.update(*battles)
    wins, tied = count_outcomes(*battles)
    expected = (wins, tied) if ties else (wins + tied / 2, None)
    strengths, _ = bradley_terry(*expected, prior_sd=prior_sd)
    torch.testing.assert_close(values(metric.compute()), strengths, rtol=0, atol=1e-9)


def test_ratings_scale_and_anchor_shift_all_models_equally(battles):
    elo, logit, anchored = Ratings(NAMES), Ratings(NAMES, scale="logit"), Ratings(NAMES, anchor=("llama", 1200.0))
    for metric in (elo, logit, anchored):
        metric.update(*battles)
    torch.testing.assert_close(values(elo.compute()), 1000 + ELO * values(logit.compute()))
    assert float(anchored.compute()["llama"]) == pytest.approx(1200)
    moved = values(anchored.compute()) - values(elo.compute())
    torch.testing.assert_close(moved, moved[:1].expand(4))
    low, high = anchored.interval()["llama"].low, anchored.interval()["llama"].high
    assert float(low) == pytest.approx(1200) == float(high)


def test_ratings_named_models_equal_numbered_ones_in_any_split(battles, ratings):
    first, second, outcome = battles
    named = [[NAMES[i] for i in indices] for indices in (first.tolist(), second.tolist())]
    texts = ["b", "tie", "a"]
    metric, other = Ratings(), Ratings()
    for start in range(0, 200, 50):
        part = slice(start, start + 50)
        metric.update(named[0][part], named[1][part], [texts[int(2 * score)] for score in outcome[part]])
    other.update(named[0][200:], named[1][200:], outcome[200:].numpy())
    metric.merge_state(pickle.loads(pickle.dumps(other)))
    restored = Ratings()
    metric.persistent(True)
    restored.load_state_dict(metric.state_dict())
    assert list(restored.compute()) == NAMES
    torch.testing.assert_close(restored.compute(), ratings.compute(), rtol=0, atol=0)
    assert torch.equal(restored.interval().low, ratings.interval().low)


def test_ratings_without_names_are_named_by_indices(battles, ratings):
    metric = Ratings()
    metric.update(*(10 + indices for indices in battles[:2]), battles[2])
    assert list(metric.compute()) == ["10", "11", "12", "13"]
    torch.testing.assert_close(values(metric.compute()), values(ratings.compute()), rtol=0, atol=0)


def test_ratings_swapped_models_give_the_same_ratings(battles, ratings):
    first, second, outcome = battles
    swapped = Ratings(NAMES)
    swapped.update(second, first, 1 - outcome)
    torch.testing.assert_close([*swapped.interval()], [*ratings.interval()], rtol=0, atol=1e-6)


OUTCOMES = {
    "Arena's words": lambda score, a, b: ["model_b", "tie (bothbad)", "Model_A"][score],
    "names": lambda score, a, b: [b, "draw", a][score],
    "texts of numbers": lambda score, a, b: ["0", "0.5", "1.0"][score],
    "one-hot": lambda score, a, b: [[0, 1, 0], [0, 0, 1], [1, 0, 0]][score],
}


@pytest.mark.parametrize("spelling", OUTCOMES)
def test_ratings_take_the_outcomes_of_their_command(battles, ratings, spelling):
    pandas = pytest.importorskip("pandas")
    a, b = (pandas.Series([NAMES[i] for i in models]) for models in battles[:2])
    told = [OUTCOMES[spelling](int(2 * score), x, y) for score, x, y in zip(battles[2], a, b, strict=True)]
    metric = Ratings()
    metric.update(a, b, pandas.DataFrame(told).squeeze(axis=1))
    torch.testing.assert_close(metric.compute(), ratings.compute(), rtol=0, atol=0)


def test_replicates_in_several_chunks_are_the_same(ratings, monkeypatch):
    expected, compared = ratings.interval(replicates=40), ratings.compare(replicates=50).to_json()
    monkeypatch.setattr(outcomes, "CHUNK", 900)
    monkeypatch.setattr("tensormetrics.uncertainty.battles.ratings.CHUNK", 100)
    assert all(torch.equal(a, b) for a, b in zip(ratings.interval(replicates=40), expected, strict=True))
    assert ratings.compare(replicates=50).to_json() == compared


def test_interval_both_orders_of_a_prompt_in_a_group_are_no_new_evidence(battles):
    once, twice, grouped = Ratings(NAMES), Ratings(NAMES), Ratings(NAMES)
    first, second, outcome = battles
    both = torch.cat([first, second]), torch.cat([second, first]), torch.cat([outcome, 1 - outcome])
    once.update(*battles)
    twice.update(*both)
    grouped.update(*both, groups=torch.arange(400).repeat(2))
    widths = [float((metric.interval().high - metric.interval().low).mean()) for metric in (once, twice, grouped)]
    assert grouped.interval().groups == 400
    assert widths[1] < 0.8 * widths[0] and widths[2] == pytest.approx(widths[0], rel=0.05)


def test_interval_above_the_unit_limit_is_nearly_unchanged(generator, monkeypatch):
    metric = Ratings(NAMES)
    metric.update(*simulate_battles(generator, torch.linspace(-1, 1, 4).double(), 900))
    full = metric.interval()
    monkeypatch.setattr(units, "MAX_UNITS", 100)
    limited = metric.interval()
    assert limited.groups == pytest.approx(900, rel=0.2) and full.groups == 900
    torch.testing.assert_close(limited.high - limited.low, full.high - full.low, rtol=0.05, atol=0)


@pytest.mark.parametrize(("battles", "won"), [(10, 9), (10, 10), (20, 20), (20, 19), (20, 18), (30, 3), (50, 45)])
def test_two_models_have_the_interval_of_jeffreys_and_the_binomial_p_value(battles, won):
    metric = Ratings()
    metric.update(["a"] * battles, ["b"] * battles, [1] * won + [0] * (battles - won))
    comparison, rate, predicted = metric.compare("a", "b"), metric.win_rates()["a", "b"], metric.predict("a", "b")["a"]
    assert float(comparison.p_value) == pytest.approx(scipy.stats.binomtest(won, battles).pvalue)
    assert (comparison.verdict == "undecided") == (float(comparison.p_value) > 0.05)
    chances = [1 / (1 + 10 ** (-float(end) / 400)) for end in (comparison.low, comparison.high)]
    expected = scipy.stats.beta.ppf([0.025, 0.975], won + 0.5, battles - won + 0.5)
    assert chances == pytest.approx(expected, abs=0.002)
    assert [float(predicted.low), float(predicted.high)] == pytest.approx(chances, abs=1e-6)
    assert rate.low < predicted.high and predicted.low < rate.high


def test_two_models_that_only_tied_have_a_width():
    metric = Ratings()
    metric.update(["a"] * 5, ["b"] * 5, [0.5] * 5)
    with pytest.warns(UncertaintyWarning, match="few battles"):
        assert -2000 < metric.compare("a", "b").low < -300


def test_interval_of_model_with_one_battle_warns(generator):
    metric = Ratings(["a", "b", "c"])
    metric.update([*"ababab" * 4, "c"], [*"bababa" * 4, "a"], [*[1, 0, 0.5] * 8, 1])
    with pytest.warns(UncertaintyWarning, match="few battles: c has 1; wanted at least 10 of each model"):
        metric.interval()


def test_copy_of_a_model_with_the_same_battles_is_equal_to_it(battles):
    """Each battle of a model is repeated by its copy in the same group."""
    first, second, outcome = battles
    swap = [torch.where(indices == 3, 4, indices) for indices in (first, second)]
    has_copy = (first == 3) | (second == 3)
    metric = Ratings([*NAMES, "copy"])
    ids = torch.arange(400)
    groups = torch.cat([ids, ids[has_copy]])
    metric.update(*(torch.cat([x, y[has_copy]]) for x, y in zip(battles, (*swap, outcome), strict=True)), groups=groups)
    estimate = metric.interval()
    torch.testing.assert_close([*estimate[3]], [*estimate[4]], rtol=0.01, atol=0)  # imagined battles differ
    comparison = metric.compare("qwen", "copy")
    assert -30 < comparison.low < float(comparison) == 0 < comparison.high < 30
    assert float(comparison.p_value) > 0.9 and float(comparison.p_better) == pytest.approx(0.5, abs=0.05)
    first_ranks = metric.table().columns["first rank"]
    assert first_ranks[0] == first_ranks[1] == 1


def test_compare_pairs_agree_with_single_pairs_and_with_ratings(ratings):
    table = ratings.compare()
    assert table.rows[0] == "gpt - llama" and len(table.rows) == 6
    single = ratings.compare("qwen", "gpt")
    computed = ratings.compute()
    assert float(single.difference) == pytest.approx(float(computed["qwen"] - computed["gpt"]))
    assert single.verdict == "better" and float(single.p_better) > 0.99
    cell = table["gpt - qwen", "difference"]
    assert float(cell.difference) == pytest.approx(-float(single.difference))
    assert float(cell.low) <= -float(single.high) and float(cell.high) >= -float(single.low)
    assert float(cell.p_corrected) >= float(cell.p_value)
    assert float(cell.a) == pytest.approx(float(computed["gpt"]))
    assert table.best == ("qwen",) and table.ranks["gpt"] == (3, 4)


def test_compare_two_judges_of_the_same_battles(battles, ratings, generator):
    first, second, outcome = battles
    flipped = torch.rand(400, generator=generator) < 0.3
    other = Ratings(NAMES)
    other.update(first, second, outcome.where(~flipped, 1 - outcome))
    comparison = compare(ratings, other)
    assert comparison.labels == tuple(NAMES)
    torch.testing.assert_close(comparison.difference, values(ratings.compute()) - values(other.compute()))
    assert comparison["qwen"].verdict == "better" and comparison["gpt"].verdict == "worse"
    unlike = Ratings(NAMES)
    unlike.update(second, first, outcome)
    with pytest.raises(ValueError, match="their items differ"):
        compare(ratings, unlike)


def test_table_has_battles_win_rates_and_ranks(ratings, battles):
    table = ratings.table("arena")
    wins, ties = count_outcomes(*battles)
    assert table.title == "arena" and table.rows[0] == "qwen"
    for i, name in enumerate(NAMES):
        fought = float((wins + wins.T + ties)[i].sum())
        assert table[name, "battles"] == fought
        assert table[name, "win rate"] == pytest.approx(float((wins + ties / 2)[i].sum()) / fought)
    assert table["qwen", "best"] and not table["gpt", "best"]
    assert (table["gpt", "first rank"], table["gpt", "last rank"]) == (3, 4)


def test_win_rates_are_intervals_of_single_pairs(ratings, battles):
    first, second, outcome = battles
    table = ratings.win_rates()
    scores = torch.where(first == 0, outcome, 1 - outcome)
    of_pair = ((first == 0) & (second == 1)) | ((first == 1) & (second == 0))
    index = torch.arange(400)[of_pair]
    expected = interval(scores[of_pair], bounds=(0, 1), groups=index)
    value, low, high = map(float, expected)
    assert [*map(float, table["gpt", "llama"])] == pytest.approx([value, low, high])
    assert [*map(float, table["llama", "gpt"])] == pytest.approx([1 - value, 1 - high, 1 - low])
    assert table["gpt", "gpt"] is None


def test_win_rates_of_models_that_never_battled_are_missing():
    metric = Ratings()
    metric.update([*"ab" * 10], [*"bc" * 10], [1, 0] * 10)
    assert metric.win_rates()["a", "c"] is None and metric.win_rates()["c", "a"] is None
    assert float(metric.win_rates()["a", "b"]) == 1


def test_predict_probabilities_are_those_of_davidson(ratings, battles):
    strengths, nu = bradley_terry(*count_outcomes(*battles))
    odds = float(((strengths[3] - strengths[0]) / 2).exp())
    weights = torch.tensor([odds, float(nu), 1 / odds])
    estimate = ratings.predict("qwen", "gpt")
    torch.testing.assert_close(estimate.value.float(), weights / weights.sum())
    assert estimate.labels == ("a", "tie", "b") and bool((estimate.low > 0).all() & (estimate.high < 1).all())
    mirrored = ratings.predict("gpt", "qwen")
    assert float(mirrored["b"].low) == pytest.approx(float(estimate["a"].low))


@pytest.mark.parametrize(("ahead", "is_seen"), [(0.0, False), (0.8, True)])
def test_position_effect_is_seen_where_there_is_one_and_strengths_cancel(generator, ahead, is_seen):
    metric = Ratings(NAMES)
    metric.update(*simulate_battles(generator, torch.linspace(-2, 2, 4).double(), 600, first_ahead=ahead))
    effect = metric.position_effect()
    assert (float(effect.low) > 0) == is_seen and float(effect.high) > 0


def position_effect(*columns):
    metric = Ratings(["a", "b"])
    metric.update(*columns)
    return [*map(float, metric.position_effect())]


def test_position_effect_of_one_pair_is_the_mean_of_both_orders():
    first = torch.tensor([0] * 12 + [1] * 8)
    outcome = [1] * 9 + [0.5] + [0] * 2 + [1] * 4 + [0] * 4
    assert position_effect(first, 1 - first, outcome)[0] == pytest.approx((9.5 / 12 + 4 / 8) / 2 - 0.5)
    assert np.isnan(position_effect([0] * 12, [1] * 12, [1, 0] * 6)).all()  # one order only
    always_first, low, _ = position_effect([0, 1] * 10, [1, 0] * 10, [1] * 20)
    assert always_first == 0.5 and 0 < low < 0.49


def test_unconnected_models_raise_in_compute_and_are_nan_in_forward():
    metric = Ratings(["a", "b", "c", "d"])
    value = metric(["a", "c"], ["b", "d"], ["a", "b"])
    assert all(math.isnan(float(rating)) for rating in value.values())
    with pytest.raises(ValueError, match="battles: got no battle between a, b and c, d"):
        metric.compute()
