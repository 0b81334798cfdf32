"""Arguments that functions and metrics of uncertainty refuse, and the beginning of the message."""

import json
import math
from functools import partial

import pytest
import torch
from torchmetrics import MeanSquaredError
from torchmetrics.classification import BinaryAUROC as StoredAUROC

from tensormetrics import Estimate, Table, compare, interval
from tensormetrics.association import WEAT
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.posterior.extend import get_experiment_aggregator
from tensormetrics.retrieval import FirstRank, HitRate, evaluate_run
from tensormetrics.structured import MultisetMatch
from tensormetrics.uncertainty import (
    BrierScore,
    CalibrationError,
    PassAtK,
    Ratings,
    Uncertain,
    compare_data_sets,
    compare_folds,
    compare_samples,
    plan,
    variance_components,
)
from tensormetrics.uncertainty.functional import bradley_terry, brier_score, calibration_error, delong, pass_at_k
from tensormetrics.uncertainty.statistics.density import kde
from tensormetrics.uncertainty.statistics.pooling import (
    pool_beta,
    pool_correlated,
    pool_gamma,
    pool_histogram,
    pool_random_effects,
)

NAN, INF = math.nan, math.inf
SCORES, ONES = torch.linspace(0.05, 0.95, 10, dtype=torch.float64), torch.ones(5).long()
UNIT, DRAWS = (0.0, 1.0), torch.linspace(0.5, 0.9, 600, dtype=torch.float64).view(200, 3)
FLAT = torch.linspace(0.01, 0.99, 101, dtype=torch.float64)[:, None].repeat(1, 3)
U_SHAPED, FINITE = torch.special.ndtri(FLAT).mul(3).sigmoid(), "has no finite mass; use 'fe', 're' or 'hist'"
sequence, paired = (partial(f, bounds=UNIT, anytime=True) for f in (interval, partial(compare, SCORES)))
NAMES = ["gpt", "llama", "mistral", "qwen"]


def tensors(*shapes, dtype=torch.float32):
    return [torch.rand(*shape).to(dtype) for shape in shapes]


def delong_of(*shapes, preds=torch.float32, groups=torch.int64):
    dtypes = (preds, torch.int64, groups)
    return delong(*(torch.rand(*shape).to(dtype) for shape, dtype in zip(shapes, dtypes, strict=False)))


def matches(*args, replicates=200, **items):
    metric = MultisetMatch(*args, replicates=replicates)
    metric.update(ONES[:, None], ONES[:, None], **items)
    return metric


def posterior(batch_shape=()):
    metric = ConfusionPosterior(2, batch_shape=batch_shape)
    metric.update(ONES.expand(*batch_shape, 5), ONES.expand(*batch_shape, 5))
    return metric


def merged(make):
    metric = make()
    metric.merge_state(make())
    return metric


def hits(kind=HitRate):
    metric = kind(1) if kind is HitRate else kind("mean")
    metric.update(torch.eye(3).repeat(4, 1), torch.arange(12) % 3)
    return metric


def battles(*columns, **options):
    metric = Ratings(options.pop("models", NAMES), **options)
    metric.update(*columns)
    return metric


CONNECTED = battles([0, 1, 2], [1, 2, 3], [1, 0, 1])


def blocks(upper):
    """Return wins of five models, of which the last two beat the others never, and lose to them as often as given."""
    wins = torch.ones(5, 5).fill_diagonal_(0)
    wins[3:, :3], wins[:3, 3:] = 0, upper
    return wins


def foreign_table(cells):
    head = {"schema": "tensormetrics/table/1", "title": None, "caption": None, "index": ""}
    return json.dumps(
        {**head, "columns": [{"name": "a", "higher_is_better": None}], "rows": [{"name": "r", "cells": cells}]}
    )


def passes(**options):
    return PassAtK(1).update(**options)


VALUES = [  # calls that raise a ValueError
    # Scores
    (lambda: interval([]), "scores: got none, wanted at least one"),
    (lambda: interval([NAN] * 3), "scores: got 3 scores that are all missing"),
    (lambda: interval([1.0, INF]), "scores: got infinite ones, wanted finite numbers"),
    (lambda: interval([1, 2], bounds=(0, 1)), "scores: got 2.0, wanted scores within the bounds 0 and"),
    (lambda: interval([1, 2], bounds=(1, 1)), "bounds: got (1, 1), wanted two numbers"),
    (lambda: interval([1, 2], ids=[1]), "ids: got 1, wanted 2, one for each score"),
    (lambda: interval([1, 2], ids=[1, None]), "ids: got a missing one"),
    (lambda: interval([1, 2], groups={1: 2}), "groups: got a dictionary for scores without ids"),
    (lambda: interval({"a": 1, "b": 2}, groups={"a": 2}), "groups: got none for the id 'b'"),
    (lambda: interval({"a": 1}, ids=["a"]), "ids: got some beside a dictionary, whose keys they are"),
    (lambda: interval([1, 2], score="acc"), "score: got it for metric, a list; leave it out"),
    (lambda: interval("a.csv", weights="n"), "weights: got it for metric, a path; read it as a DataFrame"),
    (lambda: interval(HitRate(1), ids=[1]), "ids: got it for a HitRate, which knows its items"),
    (lambda: compare([1, 0], [1, 0, 1]), "scores: got 2 of a, 3 of b, wanted as many of each"),
    (lambda: compare({"x": 1}, [1]), "ids: got some for a and none for b"),
    (lambda: compare({"x": 1}, {"y": 1}, on_missing="drop"), "ids: no item has a score of each model"),
    (lambda: compare([1, 0], [1, 0], on_missing="skip"), "on_missing: got 'skip', wanted one of"),
    (lambda: compare([1, 0], [1, 0], rope=-1), "rope: got -1, wanted None or a number >= 0"),
    (lambda: compare({"x": [1, 0]}), "a: got 1 models, wanted at least two"),
    (lambda: compare([1, 0], [[1, 0]]), "b: got scores (1, 2), wanted (2,) as a has"),
    (lambda: compare({"x": [[1, 0]], "y": [[1, 0]]}), "x: got scores (1, 2), wanted a score for each item"),
    # Anytime
    (lambda: interval(SCORES, anytime=True), "bounds: got none"),
    (lambda: sequence(SCORES, bounds=(0, INF)), "bounds: got (0.0, inf), wanted the least and the largest"),
    (lambda: interval(SCORES, bounds=UNIT, looks=[3]), "looks: got some without anytime"),
    (lambda: sequence(SCORES, looks=[11]), "looks: got [11], wanted numbers of items from 1 to"),
    (lambda: sequence(SCORES, looks=[0]), "looks: got 0"),
    (lambda: sequence(SCORES, looks=[]), "looks: got"),
    (lambda: sequence(SCORES, replicates=9), "replicates: got 9 with anytime"),
    (lambda: sequence(SCORES, confidence=1), "confidence: got 1"),
    (lambda: sequence(2 * ONES), "scores: got 2.0, wanted scores within the bounds 0.0 and 1.0."),
    (lambda: paired(SCORES[:5]), "scores: got 10 of a, 5 of b, wanted as many of each"),
    (lambda: paired(1.5), "b: got 1.5, wanted a number between the bounds"),
    (lambda: compare(SCORES, SCORES, anytime=True), "bounds: got none"),
    (lambda: paired(SCORES, seed=1), "seed: got 1 with anytime"),
    (lambda: paired(SCORES, alternative="more"), "alternative: got"),
    (lambda: compare(SCORES, SCORES, bounds=UNIT, looks=[3]), "looks: got some without anytime"),
    # Metrics
    (lambda: compare(matches(), WEAT()), "b: got a WEAT, wanted a MultisetMatch as a is."),
    (lambda: compare(matches(), INF), "b: got inf, wanted a metric or a finite number."),
    (lambda: compare(matches(), 0.5, alternative="larger"),
     "alternative: got 'larger', wanted one of 'two-sided', 'greater', 'less'."),
    (lambda: compare(matches(), matches(), alternative="less", confidence=0.5),
     "confidence: got 0.5, wanted a number between 0.5 and 1 for one side."),
    (lambda: compare(matches(), matches(ids=ONES)),
     "a, b: their items differ; feed both with the same ids (or, without ids, the same order)."),
    (lambda: compare(matches(), matches(), rope=-0.1), "rope: got -0.1, wanted None or a number >= 0."),
    (lambda: matches().interval(confidence=0), "confidence: got 0, wanted a number between 0 and 1."),
    (lambda: matches(replicates=0).interval(),
     "replicates: got 0 for MultisetMatch, which keeps nothing of items; leave it out, update again."),
    (lambda: matches().interval(replicates=7),
     "replicates: got 7, but this MultisetMatch was made with replicates=200; leave it out."),
    (lambda: posterior().interval(replicates=0), "replicates: got 0, wanted an integer >= 1."),
    (lambda: matches(ids=ONES.double()), "ids: got torch.float64, wanted an integer dtype; write ids.long()."),
    (lambda: matches(ids=torch.arange(3)), "ids: got shape (3,), wanted (5,)."),
    (lambda: compare(posterior(batch_shape=(1,)), posterior(batch_shape=(1,))),
     "ids: got none for more than 262,144 items, or for a batch of matrices, so that items cannot be paired; write "
     "update(preds, target, ids=...)."),
    (lambda: compare(merged(posterior), posterior()),
     "ids: got none for items of merged metrics, which have no common order; write ids= in update."),
    (lambda: compare(merged(partial(matches, replicates=None)), matches(replicates=None)),
     "ids: got none for items of merged metrics, which have no common order; write ids= in update."),
    (lambda: Uncertain(StoredAUROC()),
     "metric: BinaryAUROC keeps preds, target, which is no sum; metrics of scores want thresholds=100."),
    (lambda: Uncertain(MeanSquaredError(), item_bounds=({"total": torch.ones(())}, {})),
     "item_bounds: got ['total'] for the worst item"),
    (lambda: evaluate_run({"q": {"a": 1.0}}, {"q": {"a": 1}}, ["num_rel"]).interval(),
     "metrics: got num_rel, wanted at least one mean for the interval"),
    (lambda: CalibrationError(0), "bins: got 0, wanted an integer >= 1."),
    (lambda: calibration_error(torch.rand(5), ONES, norm="max"), "norm: got 'max', wanted one of 'l1', 'rms'"),
    (lambda: brier_score(torch.rand(5, 1), ONES), "preds: got shape (5, 1), wanted (5,) or (5, C) for this target."),
    # Several models
    (lambda: compare({"a": hits(), "b": hits()}, baseline="c"), "baseline: got 'c'"),
    (lambda: compare({"a": hits(), "b": hits()}, correction="none"), "correction: got 'none'"),
    (lambda: compare({"a": hits(), "rank": hits(FirstRank)}), "rank: got a FirstRank, wanted a HitRate as a is"),
    (lambda: compare({"a": hits(), "both": {"x": hits(), "y": hits()}}), "both: got x, y, wanted one metric as a has"),
    (lambda: compare(hits(), hits(), baseline="x"), "baseline: got 'x' for two metrics"),
    # Folds, data sets and draws
    (lambda: compare_folds(*tensors((1,), (1,))), "a, b: got shapes (1,) and (1,), wanted equal ones of n >= 2 folds."),
    (lambda: compare_folds(*tensors((3,), (4,))), "a, b: got shapes (3,) and (4,), wanted equal ones of n >= 2 folds."),
    (lambda: compare_folds(*tensors((3,), (3,)), 1.0), "rho: got 1.0, wanted None or a number in [0, 1)."),
    (lambda: compare_folds(*tensors((3,), (3,)), rope=NAN), "rope: got nan, wanted None or a number >= 0."),
    (lambda: compare_folds(*tensors((3,), (3,)), rope="0.1"), "rope: got '0.1', wanted None or a number >= 0."),
    (lambda: compare_data_sets(*tensors((2, 10), (2, 10))),
     "a, b: got shape (2, 10), wanted at least 3 data sets of 4 results each."),
    (lambda: compare_data_sets(*tensors((8, 3), (8, 3))),
     "a, b: got shape (8, 3), wanted at least 3 data sets of 4 results each."),
    (lambda: compare_data_sets(torch.ones(3, 5), torch.zeros(3, 5)),
     "a, b: got a data set whose differences are all equal or not finite, wanted differing ones."),
    (lambda: compare_samples(*tensors((3,), (2,))), "b: got shape (2,), wanted (3,)."),
    (lambda: compare_samples(*tensors((3,), (3,)), confidence=1),
     "confidence: got 1, wanted a number between 0 and 1."),
    (lambda: compare_samples(*tensors((0,), (0,))), "draws: got none, wanted at least one."),
    (lambda: compare_samples(torch.arange(3), torch.rand(3)), "a: got torch.int64, wanted a floating dtype"),
    # Plans
    (lambda: plan(sd=1.0, difference=0.1), "difference, items, power: wanted two of them"),
    (lambda: plan(sd=1.0, difference=0.1, items=5, power=0.8), "difference, items, power: wanted two of them"),
    (lambda: plan(difference=0.1, items=5), "pilot, sd: wanted one of both"),
    (lambda: interval([1, 0, 1], ids=[0, 1, 0], bounds=(0, 1), anytime=True), "ids: got repeats of items with anytime"),
    (lambda: interval([1, 0, 1], groups=[0, 1, 0], anytime=True), "groups: got scores of one after those of another"),
    (lambda: plan(sd=-1.0, difference=0.1, power=0.8), "sd: wanted numbers above 0"),
    (lambda: plan(sd=1.0, difference=0.0, power=0.8), "difference: wanted finite numbers other than 0"),
    (lambda: plan(compare([1.0] * 30, [1.0] * 30), difference=0.05, power=0.8), "sd: wanted numbers above 0; diff"),
    (lambda: plan(sd=1.0, difference=-0.2, power=0.8, rope=0.1), "difference: wanted finite numbers other"),
    (lambda: plan(sd=1.0, difference=0.1, power=0.04), "power: wanted numbers above 0.05"),
    (lambda: plan(sd=1.0, difference=0.1, items=1), "items: wanted at least 2"),
    (lambda: plan(sd=1.0, difference=1e-9, power=0.8), "difference: got one that no number of items shows"),
    (lambda: plan(([1.0, 2], [1.0]), difference=1.0, power=0.8), "pilot: got scores"),
    # Variance components
    (lambda: variance_components([1.0, 2, 3], [0, 0, 0]), "ids: got 1 items, wanted at least 2"),
    (lambda: variance_components([1.0, 2], [0, 1], [0, 0]), "ids, repeats: got 2 items and 1 seeds"),
    (lambda: variance_components([1.0, 2, 3], [*"aab"], [1, 2, 2]), "repeats: got none for the item 'b' and the"),
    (lambda: variance_components([1.0, 2, 3, 4, 5], [0, 0, 1, 1, 1], [5, 6, 5, 6, 6]),
     "repeats: got 2 scores for the item 1 and the repeat 6"),
    (lambda: variance_components([1.0, 2, NAN, 4], [0, 0, 1, 1], [5, 6, 5, 6]),
     "repeats: got none for the item 1 and the repeat 5"),
    (lambda: variance_components([1.0, 2, 3], [0, 1]), "ids: got shape"),
    (lambda: variance_components([1.0, 2, 3], [0, 0, 1]).interval(),
     "repeats: got nested ones, whose means hold the variance; write interval(scores, ids=ids)."),
    (lambda: variance_components([1.0, 2, 3], [0, 0, 1]).se(repeats=0), "repeats: got 0"),
    (lambda: kde(SCORES, boundary="wrap"), "boundary: got 'wrap', wanted one of 'none', 'reflect'."),
    (lambda: kde(SCORES, boundary="reflect"),
     "clip: got None with boundary='reflect', wanted (low, high), where to reflect."),
    (lambda: kde(SCORES, grid_samples=1), "grid_samples: got 1, wanted an integer >= 2."),
    # DeLong
    (lambda: delong_of((5,), (5,)), "preds: got shape"),
    (lambda: delong_of((2, 5), (5,), preds=torch.int64), "preds: got torch.int64"),
    (lambda: delong_of((2, 5), (4,)), "target: got shape"),
    (lambda: delong_of((3, 2, 5), (5,)), "target: got shape"),
    (lambda: delong_of((2, 5), (5,), (4,)), "groups: got shape"),
    (lambda: delong_of((3, 2, 5), (3, 5), (2, 5)), "groups: got shape"),
    (lambda: delong_of((2, 5), (5,), (5,), groups=torch.float32), "groups: got torch.float32"),
    # Passes
    (lambda: pass_at_k(3, 1, 4), "n: got fewer than k = 4; wanted"),
    (lambda: pass_at_k(torch.tensor([5, 5]), torch.tensor([1, 6]), 2), "c: got more than n"),
    (lambda: pass_at_k(5, -1, 2), "c: got < 0"),
    (lambda: pass_at_k(5, 1, 0), "k: got 0, wanted an integer >= 1"),
    (lambda: pass_at_k(5, 1, ()), "k: got no number"),
    (lambda: pass_at_k(5.0, 1, 2), "n: got torch.float32, wanted an integer dtype"),
    (lambda: pass_at_k(5, 1, 2, require="most"), "require: got 'most', wanted one of 'any', 'all'"),
    # Ratings
    (lambda: battles(["gpt"], ["claude"], ["a"]), "b: got 'claude', wanted one of 'gpt'"),
    (lambda: battles(["gpt"], ["llama"], ["won"]), "outcome: battle 0: got 'won' for an outcome, wanted model_a"),
    (lambda: battles(["b"], ["a"], ["a"], models=None), "outcome: battle 0: got 'a', both a word and the name of"),
    (lambda: battles(["gpt"], ["llama"], torch.tensor([[1, 1, 0]])), "outcome: battle 0: got -1.0, wanted 1, 0, 0.5"),
    (lambda: battles(["gpt"], ["llama"], [2]), "outcome: battle 0: got 2.0, wanted 1, 0, 0.5"),
    (lambda: battles(["gpt", "gpt"], ["llama", "gpt"], ["a", "a"]), "a, b: battle 1: got a model against itself"),
    (lambda: battles([0], [4], [1]), "a, b: battle 0: got 0 and 4, wanted two of 0 to 3"),
    (lambda: battles(["gpt", "llama"], ["llama"], ["a"]), "lengths differ: a has 2, b has 1, outcome has 1."),
    (lambda: battles(torch.tensor([0.0]), [1], [1]), "a: got torch.float32"),
    (lambda: battles([*"ogl"], [*"glg"], [*"aaa"], models=None, prior_sd=None).compute(),
     "battles: o never lost, so that the likelihood has no maximum; write prior_sd=3.0."),
    (lambda: CONNECTED.compare("gpt", "x"), "b: got 'x', wanted one of 'gpt'"),
    (lambda: CONNECTED.predict("x", "gpt"), "a: got 'x', wanted one of 'gpt'"),
    (lambda: CONNECTED.compare("gpt"), "b: got None, wanted one of 'gpt'"),
    (lambda: Ratings(1), "models: got 1"),
    (lambda: Ratings(["a", "a"]), "models: got"),
    (lambda: Ratings(["a"]), "models: got"),
    (lambda: Ratings(prior_sd=0), "prior_sd: got 0"),
    (lambda: Ratings(NAMES, anchor=("claude", 1000)), "anchor: got 'claude'"),
    (lambda: Ratings(anchor=("gpt", INF)), "anchor: got inf"),
    (lambda: bradley_terry(blocks(0)), "wins: got no battle between model 0, model 1, model 2 and model 3, model 4"),
    (lambda: bradley_terry(blocks(0), prior_sd=None), "wins: got no battle between model 0, model 1, model 2 and "),
    (lambda: bradley_terry(blocks(1), prior_sd=None), "wins: model 3, model 4 never won against the others, so that "
     "the likelihood has no maximum; write prior_sd=3.0."),
    (lambda: bradley_terry(blocks(1)[:4, :4], prior_sd=None), "wins: model 3 never won, so"),
    (lambda: bradley_terry(blocks(1).T[2:, 2:], prior_sd=None), "wins: model 0 never won, so"),
    (lambda: bradley_terry(torch.zeros(3, 3)), "wins: got no battle between model 0 and model 1, model 2"),
    *((lambda sd=sd: bradley_terry(torch.ones(3, 3), prior_sd=sd), "prior_sd: got")
      for sd in (0, -1.0, NAN, "wide", True)),
    (lambda: bradley_terry(torch.ones(3, 4)), "wins: got shape (3, 4)"),
    (lambda: bradley_terry(torch.ones(3)), "wins: got shape (3,)"),
    (lambda: bradley_terry(*tensors((3, 3), (2, 2))), "ties: got shape (2, 2)"),
    (lambda: bradley_terry(*tensors((2, 3, 3), (3, 3))), "ties: got shape (3, 3)"),
    # Pools
    (lambda: pool_beta(U_SHAPED, SCORES, UNIT), f"samples: the product of their beta densities {FINITE}."),
    (lambda: pool_gamma(FLAT**9, SCORES, UNIT), f"samples: the product of their gamma densities {FINITE}."),
    (lambda: pool_beta(DRAWS, SCORES, (0.0, INF)),
     "bounds: got (0.0, inf), 'beta' wants finite ones; use 'fe', 're' or 'hist'."),
    (lambda: get_experiment_aggregator("beta")(DRAWS, (1.0, 0.0)),
     "bounds: got (1.0, 0.0), wanted (low, high) with low <= high."),
    (lambda: pool_gamma(DRAWS, SCORES, (-1.0, 1.0)),
     "bounds: got (-1.0, 1.0), 'gamma' wants a lower one >= 0; write shifted=True, or use 'fe', 're' or 'hist'."),
    (lambda: pool_beta(DRAWS, SCORES, UNIT, estimation_method="moments"),
     "estimation_method: got 'moments', wanted one of 'mle', 'mm', 'mome'."),
    (lambda: pool_random_effects(DRAWS[:, :1], SCORES, UNIT, hksj_sampling_distribution=True),
     "samples: got 1 experiment, hksj_sampling_distribution=True wants at least 2; use 'singleton'."),
    (lambda: pool_correlated(DRAWS[:, :1], SCORES, UNIT),
     "samples: got 1 experiment, 'correlated' wants at least 2; use 'singleton'."),
    (lambda: pool_correlated(DRAWS, SCORES, UNIT, rho=1), "rho: got 1, wanted None or a number in [0, 1)."),
    (lambda: pool_histogram(DRAWS, SCORES, UNIT, pseudo_count_weight=0),
     "pseudo_count_weight: got 0, wanted a finite number > 0."),
    (lambda: pool_histogram(DRAWS, SCORES, UNIT, pseudo_count_weight=[0.1]),
     "pseudo_count_weight: got [0.1], wanted a finite number > 0."),
    (lambda: get_experiment_aggregator("singleton")(DRAWS, UNIT),
     "samples: got 3 experiments, 'singleton' takes one; use 'fe', 're' or 'hist'."),
    # Tables
    (lambda: Table(["a", "a"], ["x"], [[1], [2]]), "rows: got 'a' twice, wanted distinct names"),
    (lambda: Table(["a"], ["x"], []), "cells: got 0 rows, wanted 1"),
    (lambda: Table(["a"], ["x"], [[1, 2]]), "cells: got 2 in row 'a', wanted 1"),
    (lambda: Table(["a"], ["x"], [{"y": 1}]), "cells: got 'y' in row 'a', wanted one of x"),
    (lambda: Table.from_json("{"), "source: wanted what Table.to_json wrote; "),
    (lambda: Table.from_json('{"schema": "x"}'), "source: got the schema 'x', wanted 'tensormetrics/table/1'"),
    (lambda: Table.from_json('{"schema": "tensormetrics/table/1"}'),
     "source: does not fit 'tensormetrics/table/1': KeyError: 'columns'"),
    (lambda: Table.from_json(foreign_table({"a": {"low": 1, "rce": 2}})), "source: does not fit"),
]  # fmt: skip
TYPES = [  # calls that raise a TypeError
    (lambda: interval(["a", "b"]), "scores: got a value that is no number"),
    (lambda: interval(0.5), "metric: got a float, wanted scores or a metric"),
    (lambda: compare([1, 0], model="model"), "model: got 'model' for a list, wanted a DataFrame or a path"),
    (lambda: interval([1, 2], groups="topic"), "groups: got a str, wanted a tensor of integers"),
    (lambda: compare([1, 0], HitRate(1)), "a: got a list, wanted a metric of this package"),
    (lambda: compare([1, 0]), "b: got a NoneType, wanted scores of the same items, or a number"),
    (lambda: interval(BrierScore(), anytime=True), "anytime: got a BrierScore, wanted the scores"),
    (lambda: compare(BrierScore(), BrierScore(), anytime=True), "a: got a BrierScore with anytime"),
    (lambda: compare({"a": SCORES, "b": SCORES}, bounds=UNIT, anytime=True), "anytime: got several models"),
    (lambda: compare({"a": hits(), "b": hits()}, b=0.5), "b: got a second argument beside several models"),
    (lambda: compare(matches(), "3"), "b: got a str, wanted a metric of this package, or Uncertain(it), or a number."),
    (lambda: compare(3, matches()), "a: got a int, wanted a metric of this package, or Uncertain(it)."),
    (lambda: matches(ids="abcde"), "ids: got a str, wanted a tensor of integers or a list of names."),
    (lambda: matches(ids=[*"abcd", 1]), "ids: got 1 among names, wanted a str."),
    (lambda: Uncertain(3), "metric: got a int, wanted a metric of torchmetrics."),
    (lambda: Table(["a"], [1], [[1]]), "columns: got 1, wanted texts"),
    (lambda: Table(["a"], ["x"], [[torch.ones(2)]]), "cells: got a Tensor in row 'a', column 'x', wanted an Estimate"),
    (lambda: Table(["a"], ["x"], [[Estimate(*torch.rand(3, 2))]]), "cells: got 2 values"),
    *((lambda options=options: passes(**options), "update: wanted (correct, problem_ids), or (c, n, ids=ids)")
      for options in (
          {"correct": ONES.bool()},
          {"correct": ONES, "ids": ONES},
          {"correct": ONES.bool(), "problem_ids": ONES, "c": ONES},
          {"n": ONES, "ids": ONES},
      )),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::tensormetrics.uncertainty.UncertaintyWarning")
@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [(kind, *case) for kind, cases in ((ValueError, VALUES), (TypeError, TYPES)) for case in cases],
)
def test_invalid_arguments_are_refused(kind, call, message):
    """A message that ends with a full stop here is whole, but for that stop."""
    with pytest.raises(kind) as error:
        call()
    text = str(error.value)
    assert text == message[:-1] if message.endswith(".") else text.startswith(message), text
