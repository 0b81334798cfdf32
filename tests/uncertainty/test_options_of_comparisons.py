"""Options that `compare` requires to be equal: those that define the score, not those that configure a model."""

import inspect
import typing

import pytest
import torch
from cases import METRICS
from torchmetrics.regression import MeanSquaredError

from tensormetrics.association import RND, WEAT
from tensormetrics.core.metric.base import Metric
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.retrieval import AccuracyCalculator, EmbeddingClusterAccuracy, HitRate
from tensormetrics.structured import BoxMatch, Family, LatentMatch, MultisetMatch, SpanScores, dsl, micro_average
from tensormetrics.uncertainty import Uncertain, compare
from tensormetrics.uncertainty.pairs.sampled import check_same_scores

# Options that define the score, by domain. Each constructor option is listed here or in `model_options` of its class.
SCORING = {
    domain: {*names.split()}
    for domain, names in {
        "association": """
            C categories correction direction distance estimator estimator_params folds holdout n_components
            n_iterations neighbors normalize normalize_direction penalize_intercept print_model_evaluation
            protocol random_state replicates return_effect_size samples seed strictness unit variance weighting""",
        "posterior": """
            batch_shape confidence confusion_prior dtype ignore_index interval method metrics num_classes
            prevalence_prior replicates seed zero_division""",
        "retrieval": """
            aggregation average avg_of_avgs beta denominator depth empty_target_action exclude far gain gains
            ignore ignore_index include k label_columns label_comparison_fn label_levels metrics on_lone
            relevance_level return_per_class score statistic ties top_k""",
        "structured": """
            average by columns constraint counts duplicates empty format ks labels link metric metrics node_limit
            objective on_invalid policy reduction repeated_mentions replicates restarts schema scheme scores seed
            singletons solver threshold top zero_division""",
        "uncertainty": "anchor bins item_bounds k metric models norm prior_sd replicates require scale seed ties width",
    }.items()
}


def parameters_of(kind: type[Metric]) -> set[str]:
    """Return the names of the parameters of the constructors of a class and its bases, up to `Metric`."""
    names = set()
    for base in kind.__mro__[: kind.__mro__.index(Metric) + 1]:
        for name, parameter in inspect.signature(base.__init__).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                names |= {key for options in typing.get_args(parameter.annotation) for key in options.__annotations__}
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                names.add(name)
    return names - {"self"}


@pytest.mark.parametrize("row", METRICS)
def test_options_belong_to_either_the_score_or_the_model(row):
    kind, scoring = type(METRICS[row].make()), SCORING[row.partition(".")[0]]
    names, model = parameters_of(kind), set(kind.model_options)
    assert names <= scoring | model, "decide: does the option say what is scored, or how a model answers?"
    assert not names & scoring & model


def test_scoring_options_are_options_of_a_metric():
    for domain, scoring in SCORING.items():
        kinds = [type(case.make()) for row, case in METRICS.items() if row.partition(".")[0] == domain]
        assert scoring <= set().union(*map(parameters_of, kinds))


DIFFERENT = [
    ("k", lambda: HitRate(1), lambda: HitRate(5)),
    ("on_lone", lambda: HitRate(1), lambda: HitRate(1, on_lone="zero")),  # an option of only one of them
    ("on_lone", lambda: HitRate(1, on_lone="zero"), lambda: HitRate(1)),
    ("distance", RND, lambda: RND(distance="cos")),
    ("labels", lambda: SpanScores(labels=("a",)), lambda: SpanScores(labels=("b",))),
    ("threshold", lambda: BoxMatch(0.5), lambda: BoxMatch(0.75)),
    ("seed", lambda: MultisetMatch(replicates=2), lambda: MultisetMatch(replicates=2, seed=1)),
    ("restarts", LatentMatch, lambda: LatentMatch(restarts=1)),
    ("metric", lambda: Uncertain(MeanSquaredError()), lambda: Uncertain(MeanSquaredError(squared=False))),
]
EQUAL = [
    (lambda: HitRate(1), lambda: HitRate(k=1, average="micro", on_lone="exclude", device="cpu")),
    (lambda: HitRate(1), lambda: HitRate(1, distance="cosine", store_dtype=torch.float16)),
    (AccuracyCalculator, lambda: AccuracyCalculator(memory_budget=2**20, exact=False, keep="all", progress=True)),
    (EmbeddingClusterAccuracy, lambda: EmbeddingClusterAccuracy(7, kmeans_func=lambda x, n_clusters: x[:, 0])),
    (lambda: ConfusionPosterior(2), lambda: ConfusionPosterior(2, name="b", threshold=0.3, compute_on_cpu=True)),
    (WEAT, lambda: WEAT(sync_on_compute=False)),
]


@pytest.mark.parametrize(("name", "make", "make_other"), DIFFERENT)
def test_compare_of_different_scores_is_refused(name, make, make_other):
    with pytest.raises(ValueError, match=rf"^{name}: got .* for a and .* for b, wanted the same for both$"):
        compare(make(), make_other())


@pytest.mark.parametrize(("make", "make_other"), EQUAL)
def test_compare_of_equal_scores_is_accepted(make, make_other):
    check_same_scores(make(), make_other())
    check_same_scores(make_other(), make())


def test_compare_families_of_different_metrics_or_options_is_refused():
    f1 = {"micro": micro_average(["f1"])}
    family = Family(dsl.auto[set[int]], f1, replicates=2)
    check_same_scores(family, Family(dsl.auto[set[int]], f1, replicates=2, by=None))
    for other, name in (
        (Family(dsl.auto[set[int]], {"m": micro_average(["f1"])}, replicates=2), "reduction"),
        (Family(dsl.auto[set[int]], f1, replicates=2, seed=1), "seed"),
        (Family(dsl.auto[list[int]], f1, replicates=2), "metric"),
        (Family(dsl.auto[set[str]], f1, replicates=2), "metric"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: got .* for a and .* for b, wanted the same for both$"):
            compare(family, other)
    with pytest.raises(ValueError, match="^b: got a MultisetMatch, wanted a Family as a is"):
        compare(family, MultisetMatch())
