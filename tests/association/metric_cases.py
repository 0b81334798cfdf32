"""Golden models, all metrics with their result keys, and custom metrics, shared by the tests of queries."""

import json
from pathlib import Path

import torch

from tensormetrics import Estimate
from tensormetrics.association import (
    ECT,
    GWEAT,
    MAC,
    RIPA,
    RND,
    RNSB,
    SAME,
    SCWEAT,
    WEAT,
    DirectBias,
    WordEmbeddingModel,
)
from tensormetrics.association.extend import BaseMetric
from tensormetrics.association.functional import rnd

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
GOLDEN["models"]["tinyB"] = {word: [y, x, -z] for word, (x, y, z) in GOLDEN["models"]["tiny"].items()}


def answer(metric, query, model):
    """Return what `run_query` gives as numbers and dictionaries by name, without the words."""
    estimate = metric.run_query(query, model)
    numbers = {"result": estimate.value, "low": estimate.low, "high": estimate.high, **estimate.details}
    numbers = {name: number for name, number in numbers.items() if name not in ("words", "lost", "reason")}
    numbers = {name: x.item() if isinstance(x, torch.Tensor) else x for name, x in numbers.items()}
    return {"query_name": estimate.name, **numbers}


class OwnQuery(BaseMetric):
    """Metric that overrides only `run_query`."""

    metric_template, metric_name, metric_short_name = (2, 1), "Own query", "OWN"

    def run_query(self, query, model):
        index = self.look_up(query, model)
        nan = torch.tensor(torch.nan, dtype=torch.float64)
        if index.reason:
            return Estimate(nan, nan, nan, details={"reason": index.reason})
        return Estimate(rnd(*index.sets(model.vectors), "cos"), nan, nan, name=query.query_name)


def table(name, device="cpu", dtype=torch.float64):
    words = GOLDEN["models"][name]
    return WordEmbeddingModel.from_tensor(torch.tensor(list(words.values()), dtype=dtype, device=device), list(words))


ALL = (WEAT, RND, RIPA, ECT, MAC, SCWEAT, RNSB, DirectBias, SAME, GWEAT)


METRICS = {metric.__name__: metric for metric in ALL}


CASES = [case for case in GOLDEN["cases"] if case["kind"] == "metric" and case["metric"] in METRICS]
KEYS = {
    WEAT: ["weat", "effect_size"],
    RND: ["rnd", "distance_by_word"],
    RIPA: ["ripa", "mean_by_word", "std_by_word", "pairs"],
    ECT: ["ect"],
    MAC: ["mac", "targets_eval"],
    SCWEAT: ["sc_weat", "effect_size_by_word"],
    RNSB: ["rnsb", "negative_sentiment_probabilities", "negative_sentiment_distribution"],
    DirectBias: ["direct_bias", "bias_by_word"],
    SAME: ["same", "skew", "stereotype", "same_by_word"],
    GWEAT: ["gweat", "by_group"],
}


def flatten_values(nested):
    return [
        leaf for value in nested.values() for leaf in (flatten_values(value) if isinstance(value, dict) else [value])
    ]


class Gap(BaseMetric):
    metric_template, metric_name, metric_short_name = (2, 1), "Gap", "GAP"

    def measure(self, *sets):
        score, by_word = rnd(*sets, per_word=True)
        return {"gap": score, "widest": by_word.abs().amax(-1)}
