"""Golden models, all metrics with their result keys, and the guide's example metric, shared by the tests of queries."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial import distance

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
    PreprocessorArgs,
    Query,
    rnd,
    wefe,
)
from tensormetrics.association.wefe import WordEmbeddingModel

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
GOLDEN["models"]["tinyB"] = {word: [y, x, -z] for word, (x, y, z) in GOLDEN["models"]["tiny"].items()}


class ExampleMetric(wefe.BaseMetric):
    """Example metric of the guide to custom metrics, copied verbatim."""

    metric_template = (2, 1)
    metric_name = "Example Metric"
    metric_short_name = "EM"

    def _calc_metric(self, target_embeddings, attribute_embeddings):
        target_embeddings_0 = np.array(list(target_embeddings[0].values()))
        target_embeddings_1 = np.array(list(target_embeddings[1].values()))
        attribute_embeddings_0 = np.array(list(attribute_embeddings[0].values()))

        target_embeddings_0_avg = np.mean(target_embeddings_0, axis=0)
        target_embeddings_1_avg = np.mean(target_embeddings_1, axis=0)
        attribute_embeddings_0_avg = np.mean(attribute_embeddings_0, axis=0)

        dist_target_0_attr = distance.cosine(target_embeddings_0_avg, attribute_embeddings_0_avg)
        dist_target_1_attr = distance.cosine(target_embeddings_1_avg, attribute_embeddings_0_avg)
        metric_result = dist_target_0_attr - dist_target_1_attr
        return metric_result

    def run_query(
        self,
        query: Query,
        word_embedding: WordEmbeddingModel,
        lost_vocabulary_threshold: float = 0.2,
        preprocessor_args: PreprocessorArgs = {  # noqa: B006
            "strip_accents": False,
            "lowercase": False,
            "preprocessor": None,
        },
        secondary_preprocessor_args: PreprocessorArgs = None,
        warn_not_found_words: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, Any]:
        super().run_query(
            query,
            word_embedding,
            lost_vocabulary_threshold,
            preprocessor_args,
            secondary_preprocessor_args,
            warn_not_found_words,
            *args,
            **kwargs,
        )
        embeddings = word_embedding.get_embeddings_from_query(
            query=query,
            lost_vocabulary_threshold=lost_vocabulary_threshold,
            preprocessor_args=preprocessor_args,
            secondary_preprocessor_args=secondary_preprocessor_args,
            warn_not_found_words=warn_not_found_words,
        )
        if embeddings is None:
            return {"query_name": query.query_name, "result": np.nan, "em": np.nan}
        target_sets, attribute_sets = embeddings
        target_embeddings = list(target_sets.values())
        attribute_embeddings = list(attribute_sets.values())
        result = self._calc_metric(target_embeddings, attribute_embeddings)
        return {"query_name": query.query_name, "result": result, "em": result}


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
