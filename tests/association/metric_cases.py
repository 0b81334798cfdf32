"""Golden models, all metrics with their result keys, and custom metrics, shared by the tests of queries."""

import json
from pathlib import Path

import numpy as np
import torch

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
    BaseMetric,
    DirectBias,
    WordEmbeddingModel,
    rnd,
)

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
GOLDEN["models"]["tinyB"] = {word: [y, x, -z] for word, (x, y, z) in GOLDEN["models"]["tiny"].items()}


class OwnQuery(BaseMetric):
    """Metric that overrides only `run_query`."""

    metric_template, metric_name, metric_short_name = (2, 1), "Own query", "OWN"

    def run_query(self, query, model, lost_vocabulary_threshold=0.2, **options):
        super().run_query(query, model, lost_vocabulary_threshold, **options)
        index = model.index_query(query, lost_vocabulary_threshold=lost_vocabulary_threshold)
        score = np.nan if index.reason else float(rnd(*index.sets(model.vectors), "cos"))
        return {"query_name": query.query_name, "result": score}


def table(name, device="cpu", dtype=torch.float64):
    words = GOLDEN["models"][name]
    return WordEmbeddingModel.from_tensor(torch.tensor(list(words.values()), dtype=dtype, device=device), list(words))


ALL = (WEAT, RND, RIPA, ECT, MAC, SCWEAT, RNSB, DirectBias, SAME, GWEAT)


METRICS = {metric.__name__: metric for metric in ALL}


CASES = [case for case in GOLDEN["cases"] if case["kind"] == "metric" and case["metric"] in METRICS]
KEYS = {
    WEAT: ["weat", "effect_size", "p_value"],
    RND: ["rnd", "distance_by_word"],
    RIPA: ["ripa", "word_values"],
    ECT: ["ect"],
    MAC: ["mac", "targets_eval"],
    SCWEAT: ["sc_weat", "effect_size_by_word", "p_value_by_word"],
    RNSB: ["rnsb", "negative_sentiment_probabilities", "negative_sentiment_distribution"],
    DirectBias: ["direct_bias", "bias_by_word"],
    SAME: ["same", "skew", "stereotype", "same_by_word"],
    GWEAT: ["gweat", "by_group", "p_value"],
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
