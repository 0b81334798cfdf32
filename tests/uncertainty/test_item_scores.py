"""Intervals and comparisons of existing scores in arrays, dictionaries and tables."""

import itertools
import json
import math
import pickle

import numpy as np
import pytest
import scipy.stats
import torch
from golden import golden
from raising import raises

from tensormetrics import Comparison, Table, compare, interval
from tensormetrics.core.resampling.families import MEMBER, FamilyMember, corrected
from tensormetrics.core.results.ranks import rank_cells
from tensormetrics.posterior import Study
from tensormetrics.retrieval import evaluate_run
from tensormetrics.uncertainty import BrierScore, Scores, UncertaintyWarning


def check_golden(case, result):
    for name, expected in case["expected"].items():
        if name != "se":
            tolerance = case["tolerance"]
            tolerance = tolerance[name] if isinstance(tolerance, dict) else tolerance
            assert float(getattr(result, name)) == pytest.approx(expected, rel=0, abs=tolerance), name


@pytest.fixture
def two(generator):
    hard = torch.rand(60, generator=generator)
    return [(hard * slope + 0.3 * torch.rand(60, generator=generator)).double() for slope in (0.7, 0.6)]


def statistics(result):
    return [*result, *(getattr(result, name) for name in ("p_value", "p_better") if hasattr(result, name))]


def close_to(result):
    return [pytest.approx(float(value), rel=1e-9, abs=1e-12) for value in statistics(result)]


@golden("scores", "interval")
def test_interval_golden_cases_equal_stored_values(case):
    inputs = case["inputs"]
    options = {name: inputs.get(name) for name in ("groups", "replicates", "confidence", "weights")}
    check_golden(case, result := interval(inputs["scores"], **options))
    if error := case["expected"].get("se"):
        quantile = scipy.stats.t.ppf(0.975, result.effective_groups - 1)
        assert float(result.high - result.low) / 2 == pytest.approx(quantile * error, rel=0.05)


def test_interval_weights_equal_copies_in_groups(generator):
    scores = torch.rand(50, generator=generator) < 0.8
    copies = torch.randint(1, 4, (50,), generator=generator)
    ids = torch.arange(50).repeat_interleave(copies)
    expected = interval(scores.repeat_interleave(copies), groups=ids)
    frame = pytest.importorskip("pandas").DataFrame({"right": scores.double(), "weight": copies})
    for result in (interval(scores, weights=0.5 * copies), interval(frame, score="right", weights="weight")):
        assert close_to(result) == statistics(expected)
        assert (result.groups, result.effective_groups) == (50, pytest.approx(expected.effective_groups))
    with raises(ValueError, "weights: got from 0 to 2, wanted finite numbers above 0"):
        interval([1, 0, 1], weights=[1, 0, 2])
    with raises(ValueError, "weights: got some for a, wanted none for paired items; write paired=False"):
        compare(Scores([1, 0, 1], weights=[1, 1, 2]), [1, 0, 0])


def test_compare_independent_samples_equals_welch(generator):
    a, b = torch.randn(400, generator=generator).double(), 0.1 + 2 * torch.randn(250, generator=generator).double()
    result = compare(a, b, paired=False, rope=0.3, replicates=4000)
    expected = scipy.stats.ttest_ind(a, b, equal_var=False)
    ends = expected.confidence_interval()
    assert [*result] == [pytest.approx(float(x), abs=0.02) for x in (a.mean() - b.mean(), ends.low, ends.high)]
    assert float(result.p_value) == pytest.approx(expected.pvalue, abs=0.02)
    not_worse = scipy.stats.ttest_ind(a + 0.3, b, equal_var=False, alternative="greater").pvalue
    assert float(result.p_not_worse) == pytest.approx(not_worse, abs=0.02)
    assert float(result.se) == pytest.approx(float((a.var() / 400 + b.var() / 250).sqrt()))
    assert (result.items, result.groups, result.discordant, result.test) == (650, 650, None, "bootstrap")
    p_value = float(compare([1] * 5, [0] * 5, paired=False).p_value)
    assert p_value == pytest.approx(2 / math.comb(10, 5))  # of all splits
    metrics = [BrierScore(replicates=1000), BrierScore(replicates=1000)]
    for metric, count in zip(metrics, (30, 40), strict=True):
        metric.update(torch.rand(count, generator=generator), torch.arange(count) % 2)
    difference = compare(*metrics, paired=False)
    assert float(difference) == pytest.approx(float(metrics[0].compute() - metrics[1].compute()))
    assert float(difference.low) < 0 < float(difference.high) and float(difference.p_value) > 0.05
    other = compare(*metrics[::-1], paired=False)
    assert (difference.low, difference.high) == (-other.high, -other.low) and difference.p_value == other.p_value
    refused = (0.5, {}, "a number"), (None, {}, "several models"), ([1, 0], {"anytime": True}, "anytime=True")
    for b, options, what in refused:
        with raises(ValueError, f"paired: got False with {what}, wanted two samples"):
            compare([1, 0, 1], b, paired=False, **options)


@golden("scores", "compare")
def test_compare_golden_cases_equal_stored_values(case):
    inputs = case["inputs"]
    options = {name: inputs.get(name) for name in ("groups", "replicates")}
    if inputs.get("groups"):
        with pytest.warns(UncertaintyWarning, match="^4 pairs: no p-value below"):
            return check_golden(case, compare(inputs["a"], inputs["b"], **options))
    check_golden(case, compare(inputs["a"], inputs["b"], **options))


@golden("scores", "rank_sets")
def test_rank_sets_golden_cases_equal_stored_values(case):
    values, draws = (torch.tensor(case["inputs"][name], dtype=torch.float64) for name in ("values", "draws"))
    pairs, members, expected = [*itertools.combinations(range(len(values)), 2)], [], case["expected"]
    nan = torch.tensor(torch.nan)
    for i, j in pairs:
        difference, deviations = values[i] - values[j], draws[:, i] - draws[:, j] - (values[i] - values[j])
        ends = -nan.new_tensor(torch.inf), nan.new_tensor(torch.inf)
        member = FamilyMember(deviations / deviations.std(), *ends, scales=None)
        ends = difference, difference, difference, torch.tensor(0.0).double(), nan, nan
        members.append(Comparison(*ends, se=deviations.std(), confidence=0.95, details={MEMBER: member}))
    family = corrected(members, "max-t")
    for (i, j), comparison in zip(pairs, family, strict=True):  # ends at the critical value
        reach = expected["critical"] * (draws[:, i] - draws[:, j]).std()
        assert [*map(float, comparison)] == pytest.approx(
            [float(values[i] - values[j] + x * reach) for x in (0, -1, 1)]
        )
    cells = rank_cells(range(len(values)), {pair: {"": c} for pair, c in zip(pairs, family, strict=True)}, "")
    first, last, is_best = zip(*(cell.values() for cell in cells), strict=True)
    assert [[*first], [*last]] == [expected["first_rank"], expected["last_rank"]]
    assert [i for i, best in enumerate(is_best) if best] == expected["not_worse_than_best"]


def test_interval_of_equal_scores_in_any_container_is_equal(two):
    pandas = pytest.importorskip("pandas")
    scores, groups = two[0], [f"g{i % 12}" for i in range(60)]
    frame = pandas.DataFrame({"acc": scores.numpy(), "topic": groups})
    expected = statistics(interval(scores, groups=groups))
    series = frame["acc"], frame["acc"].astype("Float64")
    for data in (scores.tolist(), tuple(scores.tolist()), scores.numpy(), *series):
        assert statistics(interval(data, groups=groups)) == expected
    assert statistics(interval(frame, score="acc", groups="topic")) == expected
    assert statistics(interval(dict(enumerate(scores.tolist())), groups=dict(enumerate(groups)))) == expected
    assert statistics(interval(Scores(scores, groups=groups))) == expected
    assert float(expected[0]) == pytest.approx(float(scores.mean()), rel=1e-12)
    table = interval(frame, score=["acc"], groups="topic")
    assert isinstance(table, Table) and statistics(table["mean", "acc"]) == expected


def test_interval_of_polars_columns_equals_tensors(two):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"acc": two[0].numpy(), "base": two[1].numpy(), "id": [f"q{i}" for i in range(60)]})
    assert statistics(interval(frame["acc"])) == statistics(interval(two[0]))
    assert statistics(interval(frame, score="acc", ids="id")) == statistics(interval(two[0], ids=frame["id"].to_list()))


def test_leading_dimensions_are_scores_of_equal_items(two):
    both = torch.stack([*two, two[0]]).view(3, 1, 60)
    estimate, comparison = interval(both, bounds=(0, 1)), compare(both, both.flip(0), bounds=(0, 1))
    assert estimate.value.shape == comparison.difference.shape == (3, 1)
    for i in range(3):
        assert statistics(estimate[i, 0]) == statistics(interval(both[i, 0], bounds=(0, 1)))
        one = compare(both[i, 0], both[2 - i, 0], bounds=(0, 1))
        assert statistics(comparison[i, 0]) == statistics(one)


def test_interval_of_binary_scores_infers_bounds(two):
    right = (two[0] > 0.3).tolist()
    of_bools = interval(right)
    assert statistics(of_bools) == statistics(interval([float(x) for x in right], bounds=(0, 1)))
    assert statistics(interval([2.0 * x for x in right])) != statistics(of_bools)
    doubled = interval([2.0 * x for x in right], bounds=(0, 2))
    assert [float(x) / 2 for x in doubled] == pytest.approx([float(x) for x in of_bools], rel=1e-12)


def test_repeats_of_an_item_count_as_one_mean(two):
    ids = [f"q{i}" for i in range(60)]
    twice = torch.cat([two[0], two[0] + 0.125])
    repeated = Scores(twice, ids * 2)
    assert statistics(interval(repeated)) == statistics(interval(two[0] + 0.0625, ids=ids))
    assert interval(repeated).items == 60
    assert statistics(compare(repeated, Scores(two[1], ids))) == statistics(compare(two[0] + 0.0625, two[1], ids=ids))
    with pytest.raises(ValueError, match="^groups: got two for an item"):
        interval(twice, ids=ids * 2, groups=range(120))


def test_missing_scores_are_left_out_and_counted(two):
    scores = two[0].clone()
    scores[[3, 8]] = torch.nan
    valid = [i for i in range(60) if i not in (3, 8)]
    estimate = interval(scores)
    assert statistics(estimate) == statistics(interval(scores[valid], ids=valid))
    assert estimate.items == 58 and estimate.details["missing"] == 2 and interval(two[0]).details["missing"] == 0
    assert statistics(compare(scores, 0.5)) == statistics(compare(scores[valid], 0.5, ids=valid))
    with pytest.raises(ValueError, match='^scores: a lacks 2 of 60, 2 are missing .* write on_missing="drop"'):
        compare(scores, two[1])
    dropped = compare(scores, two[1], on_missing="drop")
    assert statistics(dropped) == statistics(compare(scores[valid], two[1][valid], ids=valid))
    assert dropped.details["dropped"] == 2
    zeros = compare(scores, two[1], on_missing="zero")
    assert statistics(zeros) == statistics(compare(scores.nan_to_num(0), two[1])) and zeros.details["zeros"] == 2


def test_compare_pairs_scores_by_id(two, generator):
    order = torch.randperm(60, generator=generator)
    expected = statistics(compare(*two))
    by_id = Scores(two[0], range(60)), Scores(two[1][order], order)
    assert statistics(compare(*by_id)) == expected
    as_texts = Scores(two[1][order], [str(i) for i in order.tolist()])
    of_texts = statistics(compare(*two, ids=[str(i) for i in range(60)]))
    assert statistics(compare(by_id[0], as_texts)) == of_texts  # ids may be integers in one file and strings in another
    less = Scores(two[1][:50], range(50)), Scores(two[0][10:], range(10, 60))
    assert compare(*less, on_missing="drop").items == 40 and compare(*less, on_missing="drop").details["dropped"] == 20
    assert compare(*less, on_missing="zero").items == 60


def test_compare_with_different_groups_is_refused(two):
    groups = [i % 10 for i in range(60)]
    a, b = (Scores(scores, range(60), groups) for scores in two)
    assert statistics(compare(a, b)) == statistics(compare(*two, groups=groups)) and compare(a, b).groups == 10
    with pytest.raises(ValueError, match="^groups: got others for b than for a"):
        compare(a, Scores(two[1], range(60), groups[::-1]))
    with pytest.raises(ValueError, match="^groups: got some for a and none for b"):
        compare(a, Scores(two[1], range(60)))


def test_compare_direction_and_scale_do_not_change_the_test(two):
    loss = compare(*two, higher_is_better=False)
    gain = compare(*two)
    assert [*loss] == [*gain] and float(loss.p_better) == pytest.approx(1 - float(gain.p_better), abs=1e-12)
    assert not loss.higher_is_better
    tiny = compare(*(scores * 2.0**-40 for scores in two))  # no digits are lost
    assert float(tiny.p_value) == float(gain.p_value)
    assert float(tiny.low) * 2.0**40 == pytest.approx(float(gain.low), rel=1e-9)


@pytest.mark.parametrize("items", [60, 1500])
@pytest.mark.parametrize("kind", ["right or wrong", "real", "real, groups", "few differ"])
def test_compare_table_equals_comparisons_of_all_pairs(kind, items, generator):
    hard = torch.rand(items, generator=generator)
    models = {f"m{i}": hard + 0.3 * torch.rand(items, generator=generator) + 0.02 * i for i in range(5)}
    if kind == "right or wrong":
        models = {name: scores > 0.4 for name, scores in models.items()}
    if kind == "few differ":
        models = {f"m{i}": hard + 0.1 * (torch.arange(items) % (items // (5 * i + 1)) == i) for i in range(5)}
    options = {"groups": torch.arange(items) % 15, "rope": 0.01} if kind == "real, groups" else {"rope": 0.01}
    table = compare(models, **options)
    for row in table.rows:
        a, b = row.split(" - ")
        one, cell = compare(models[a], models[b], **options), table[row, "difference"]
        assert [statistics(cell)[i] for i in (0, 3, 4)] == [close_to(one)[i] for i in (0, 3, 4)] and float(
            cell.p_rope
        ) == float(one.p_rope)
        assert float(cell.low) <= float(one.low) + 1e-9 and float(cell.high) >= float(one.high) - 1e-9
        assert cell.discordant == one.discordant and cell.items == one.items == items
        for name in ("p_not_worse", "p_equivalent", "se", "sd"):
            assert float(getattr(cell, name)) == pytest.approx(float(getattr(one, name)))
        assert statistics(cell.a) == close_to(one.a)
        assert statistics(cell.b) == close_to(interval(models[b], groups=options.get("groups")))
    assert [*table.models.rows] == [*models] and table.best and pickle.loads(pickle.dumps(table)) == table


def test_compare_models_of_several_scores_with_baseline(two):
    models = {"x": {"acc": two[0], "right": two[0] > 0.4}, "y": {"acc": two[1], "right": two[1] > 0.4}}
    table = compare(models, baseline="x")
    assert [*table.columns] == ["acc", "acc - x", "acc p", "right", "right - x", "right p"]
    assert [*table["y", "acc - x"]] == [*compare(two[1], two[0])]
    with pytest.raises(ValueError, match="^best: got models that were compared in acc, right, wanted one score"):
        compare(models).best  # noqa: B018


def test_ranks_follow_clear_differences(generator):
    hard = torch.rand(400, generator=generator)
    models = {f"m{i}": hard + 0.1 * torch.rand(400, generator=generator) + shift
              for i, shift in enumerate((0.0, 0.2, 0.2, 0.5))}  # fmt: skip
    table = compare(models)
    assert table.best == ("m3",) and table.ranks == {"m0": (4, 4), "m1": (2, 3), "m2": (2, 3), "m3": (1, 1)}
    losses = compare(models, higher_is_better=False)
    assert losses.best == ("m0",) and losses.ranks["m3"] == (4, 4)
    assert table.models["m3", "first rank"] == 1 and table.models["m3", "best"] is True


@pytest.mark.slow
def test_ranks_of_simulated_models_hold_with_the_promised_confidence(generator):
    """Six models, three of them equal and best: 400 sets of 30 items."""
    held = 0
    for seed in range(400):
        hard = torch.randn(30, generator=generator)
        skill = torch.tensor([0.5, 0.5, 0.5, 0.3, 0.1, 0.0])
        scores = hard + skill[:, None] + 0.5 * torch.randn(6, 30, generator=generator)
        ranks = compare({str(i): row for i, row in enumerate(scores)}, replicates=200, seed=seed).ranks
        truth = [(1, 3), (1, 3), (1, 3), (4, 4), (5, 5), (6, 6)]
        pairs = zip(ranks.values(), truth, strict=True)
        held += all(first <= low and high <= last for (first, last), (low, high) in pairs)
    assert held >= 0.93 * 400


def test_compare_equal_scores_of_any_source_agree(tmp_path, generator):
    """Arrays, metrics, runs, experiments of a study and files with equal scores of 0 and 1."""
    right = (torch.rand(2, 40, generator=generator) < torch.tensor([[0.8], [0.7]])).long()
    names = [f"q{i}" for i in range(40)]
    expected = close_to(compare(*right, ids=names))

    def metric(scores):
        result = BrierScore(replicates=1000)  # squares of 0 and 1
        result.update(scores.double(), torch.zeros_like(scores), ids=names)
        return result

    def run(hits):
        ranked = {name: {"a": 1.0, "b": 2.0 - 2 * hit} for name, hit in zip(names, hits.tolist(), strict=True)}
        return evaluate_run(ranked, {name: {"a": 1} for name in names}, ["P_1"])

    def file(name, hits):
        lines = (json.dumps({"id": name, "score": hit}) for name, hit in zip(names, hits.tolist(), strict=True))
        (tmp_path / name).write_text("\n".join(lines))
        return tmp_path / name

    assert statistics(compare(*map(run, right))["P_1"]) == expected
    assert statistics(compare(*(file(name, hits) for name, hits in zip("ab", right, strict=True)))) == expected
    assert statistics(compare(*map(metric, right)))[:4] == expected[:4]
    by_position = close_to(compare(*right))  # items of a study have no names
    study = Study(seed=0, metrics={"acc": {}})
    for name, hits in zip("ab", right, strict=True):
        study.add_experiment(
            f"one/{name}", y_true=[1] * 39 + [0], y_pred=hits.tolist()[:39] + [1 - hits[39]], items="x"
        )
    (row,) = study.compare("acc").cells
    assert statistics(row[0]) == by_position


def test_compare_three_pairs_warns_once():
    with pytest.warns(UncertaintyWarning, match="^3 pairs: no p-value below") as warned:
        compare({"x": [1, 0, 1], "y": [1, 1, 1], "z": [0, 0, 1]})
    assert len(warned) == 1


def test_scores_repr_shows_mean_and_items():
    assert repr(Scores([1, 0, 1, 1], name="acc")) == "Scores(acc=0.75, items=4)"
    assert repr(Scores(np.ones((2, 4)))) == "Scores(score (2,), items=4)"
