"""Intervals and comparisons of scores, and probabilistic scores: is one model better than another?

Every metric has `interval()`. Two metrics that were updated with the same items are compared by `compare`.
"""

# Subpackages and files, each built on the previous ones; `_metric.py` comes between `engine` and `statistics`:
#   results: the types of results; imports only files below all domains
#   engine: weights of items, intervals and comparisons of weighted sums
#   statistics: samples, pooling, tests over folds and data sets; imports no metric
#   metrics: metrics of binary scores and probabilities, and the wrapper of torchmetrics' metrics
#   item_scores, score_files, score_sources: existing scores of items, in files, and in other containers
#   sequences: intervals that hold at every number of items
#   scores: the interval of a score
#   metric_pairs, paired_scores, paired_sequences, model_tables, comparison: comparisons of two metrics, of scores, of
#     scores at every number of items, of several models, and the public function for all of them
#   planning: the number of items of a comparison
#   battles: strengths and ratings of models from pairwise judgements

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .battles.bradley_terry import bradley_terry as bradley_terry
    from .battles.ratings import Ratings as Ratings
    from .comparison import compare as compare
    from .engine.corrections import correct_p_values as correct_p_values
    from .engine.errors import UncertaintyWarning as UncertaintyWarning
    from .item_scores import Scores as Scores
    from .metrics.calibration import BrierScore as BrierScore
    from .metrics.calibration import CalibrationError as CalibrationError
    from .metrics.calibration import brier_score as brier_score
    from .metrics.calibration import calibration_error as calibration_error
    from .metrics.delong import DeLong as DeLong
    from .metrics.delong import delong as delong
    from .metrics.passes import PassAtK as PassAtK
    from .metrics.passes import pass_at_k as pass_at_k
    from .metrics.ranked import BinaryAUROC as BinaryAUROC
    from .metrics.ranked import BinaryAveragePrecision as BinaryAveragePrecision
    from .metrics.ranked import binary_auroc as binary_auroc
    from .metrics.ranked import binary_average_precision as binary_average_precision
    from .metrics.uncertain import Uncertain as Uncertain
    from .planning import Plan as Plan
    from .planning import plan as plan
    from .results.comparison_table import ComparisonTable as ComparisonTable
    from .results.estimates import Comparison as Comparison
    from .results.estimates import Estimate as Estimate
    from .results.estimates import as_scalars as as_scalars
    from .results.table import Table as Table
    from .score_files import read_scores as read_scores
    from .scores import interval as interval
    from .statistics.components import VarianceComponents as VarianceComponents
    from .statistics.components import variance_components as variance_components
    from .statistics.cross_validation import compare_folds as compare_folds
    from .statistics.cross_validation import five_by_two_p_value as five_by_two_p_value
    from .statistics.data_sets import compare_data_sets as compare_data_sets
    from .statistics.density import Density as Density
    from .statistics.density import kde as kde
    from .statistics.pooling import pool_beta as pool_beta
    from .statistics.pooling import pool_correlated as pool_correlated
    from .statistics.pooling import pool_fixed_effects as pool_fixed_effects
    from .statistics.pooling import pool_gamma as pool_gamma
    from .statistics.pooling import pool_histogram as pool_histogram
    from .statistics.pooling import pool_random_effects as pool_random_effects
    from .statistics.sample_comparison import compare_samples as compare_samples
    from .statistics.samples import hdi as hdi
    from .statistics.truncated import beta_icdf as beta_icdf
    from .statistics.truncated import truncated_gamma_icdf as truncated_gamma_icdf
    from .statistics.truncated import truncated_normal_icdf as truncated_normal_icdf
    from .statistics.truncated import truncated_t_icdf as truncated_t_icdf

__all__ = [
    "BinaryAUROC",
    "BinaryAveragePrecision",
    "BrierScore",
    "CalibrationError",
    "Comparison",
    "ComparisonTable",
    "DeLong",
    "Density",
    "Estimate",
    "PassAtK",
    "Plan",
    "Ratings",
    "Scores",
    "Table",
    "Uncertain",
    "UncertaintyWarning",
    "VarianceComponents",
    "as_scalars",
    "binary_auroc",
    "binary_average_precision",
    "beta_icdf",
    "bradley_terry",
    "brier_score",
    "calibration_error",
    "compare",
    "compare_data_sets",
    "compare_folds",
    "compare_samples",
    "correct_p_values",
    "delong",
    "five_by_two_p_value",
    "hdi",
    "interval",
    "kde",
    "pass_at_k",
    "plan",
    "pool_beta",
    "pool_correlated",
    "pool_fixed_effects",
    "pool_gamma",
    "pool_histogram",
    "pool_random_effects",
    "read_scores",
    "truncated_gamma_icdf",
    "truncated_normal_icdf",
    "truncated_t_icdf",
    "variance_components",
]

# Lazy imports: importing the engine runs this file, and the public modules import modules that need the engine.
_MODULES = {
    "comparison": ("compare",),
    "engine.corrections": ("correct_p_values",),
    "engine.errors": ("UncertaintyWarning",),
    "metrics.calibration": (
        "BrierScore",
        "CalibrationError",
        "brier_score",
        "calibration_error",
    ),
    "metrics.delong": (
        "DeLong",
        "delong",
    ),
    "metrics.passes": (
        "PassAtK",
        "pass_at_k",
    ),
    "metrics.ranked": (
        "BinaryAUROC",
        "BinaryAveragePrecision",
        "binary_auroc",
        "binary_average_precision",
    ),
    "metrics.uncertain": ("Uncertain",),
    "results.estimates": (
        "Comparison",
        "Estimate",
        "as_scalars",
    ),
    "item_scores": ("Scores",),
    "planning": (
        "Plan",
        "plan",
    ),
    "results.comparison_table": ("ComparisonTable",),
    "results.table": ("Table",),
    "score_files": ("read_scores",),
    "scores": ("interval",),
    "statistics.components": (
        "VarianceComponents",
        "variance_components",
    ),
    "battles.bradley_terry": ("bradley_terry",),
    "battles.ratings": ("Ratings",),
    "statistics.cross_validation": (
        "compare_folds",
        "five_by_two_p_value",
    ),
    "statistics.data_sets": ("compare_data_sets",),
    "statistics.density": (
        "Density",
        "kde",
    ),
    "statistics.pooling": (
        "pool_beta",
        "pool_correlated",
        "pool_fixed_effects",
        "pool_gamma",
        "pool_histogram",
        "pool_random_effects",
    ),
    "statistics.sample_comparison": ("compare_samples",),
    "statistics.samples": ("hdi",),
    "statistics.truncated": (
        "beta_icdf",
        "truncated_gamma_icdf",
        "truncated_normal_icdf",
        "truncated_t_icdf",
    ),
}

if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        for module, names in _MODULES.items():
            if name in names:
                value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
