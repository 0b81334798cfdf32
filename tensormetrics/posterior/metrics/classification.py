"""The classification metrics, one row each: functions of the sums of a confusion matrix.

The forms equal the textbook ones, written without 1 - x: since the sums of a class add up to 1, exact zeros and ones
stay exact. x / 0 is inf for x > 0. What is undefined (0 / 0, and inf - inf of logarithms) comes out of a formula as
nan, and is answered by the option `zero_division`: if not given, 0 for f1, fbeta and p4, nan for all others.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .quantity import LinearForm, Values, total
from .registry import ConfusionMetric


class Score(NamedTuple):
    aliases: tuple[str, ...]  # the first is canonical
    full_name: str
    formula: Callable[..., Tensor]  # arguments are what it depends on, (..., C) each; keywords are options
    per_class: bool = True  # (..., C), else (..., 1)
    higher_is_better: bool | None = True
    bounds: tuple[float, float] | Callable[..., tuple[float, float]] = (0.0, 1.0)  # or of C and the options
    sklearn_equivalent: str | None = None
    weights: Callable[..., Tensor] | None = None  # of |i - j| (C, C) and the options: w in cost = sum_ij w_ij C_ij
    zero_division: float = math.nan


def _accuracy(tp: Tensor, fn: Tensor) -> Tensor:
    return total(tp) / (total(tp) + total(fn))


def _balanced_accuracy(tp: Tensor, fn: Tensor, *, adjusted: bool = False) -> Tensor:
    is_present = tp + fn > 0
    classes = total(is_present.to(tp))
    rates = total(torch.where(is_present, tp / (tp + fn), 0))
    if adjusted:  # (mean - chance) / (1 - chance), chance being 1 / classes
        return torch.where(classes > 1, (rates - 1) / (classes - 1), torch.nan)
    return rates / classes


def _mcc(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    scale = total((tp + fn) * (fp + tn)) * total((tp + fp) * (fn + tn))
    return total(tp * tn - fp * fn) / scale.sqrt()


def _fbeta(tp: Tensor, fp: Tensor, fn: Tensor, *, beta: float = 1.0) -> Tensor:
    return (1 + beta**2) * tp / ((1 + beta**2) * tp + (beta**2 * fn + fp))


def _p4(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    product = 4 * tp * tn
    return torch.where(tp + tn == 0, 0, product / (product + (tp + tn) * (fp + fn)))


def _denominator(rate: Tensor, clamp: bool) -> Tensor:
    """Return the rate; if `clamp`, the smallest rate above 0 of the same matrix instead of 0."""
    if not clamp:
        return rate
    smallest = torch.where(rate > 0, rate, torch.inf).amin(-1, keepdim=True)
    return torch.where((rate == 0) & smallest.isfinite(), smallest, rate)


def _plr(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, *, clamp: bool = False) -> Tensor:
    return tp / (tp + fn) / _denominator(fp / (fp + tn), clamp)


def _log_plr(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, *, clamp: bool = False) -> Tensor:
    return (tp / (tp + fn)).log() - _denominator(fp / (fp + tn), clamp).log()


def _nlr(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, *, clamp: bool = False) -> Tensor:
    return fn / (tp + fn) / _denominator(tn / (fp + tn), clamp)


def _log_nlr(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, *, clamp: bool = False) -> Tensor:
    return (fn / (tp + fn)).log() - _denominator(tn / (fp + tn), clamp).log()


def _prevalence_threshold(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor) -> Tensor:
    tpr, fpr = tp / (tp + fn), fp / (fp + tn)
    return fpr.sqrt() / (tpr.sqrt() + fpr.sqrt())


def _gain(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, errors: Tensor) -> Tensor:
    """Return the gain over the classifier that is always positive, 1 - odds * errors / tp."""
    gain = (1 - (tp + fn) / (fp + tn) * errors / tp).clamp(0, 1)
    return torch.where((tp == 0) & (errors > 0), 0, gain)


def _fbeta_gain(tp: Tensor, fp: Tensor, fn: Tensor, tn: Tensor, *, beta: float = 1.0) -> Tensor:
    gain = _gain(tp, fp, fn, tn, (fp + beta**2 * fn) / (1 + beta**2))
    return torch.where(tp == 0, torch.where(fn > 0, 0, torch.nan), gain)


def _ordinal_weights(distance: Tensor, power: float = 1.0) -> Tensor:
    """Return (|i - j| / (C - 1))^power, and 0 on the diagonal also for the power 0."""
    return torch.where(distance == 0, 0, (distance / distance.max()) ** power)


def _ordinal_kappa(cost: Tensor, tp: Tensor, fp: Tensor, fn: Tensor, *, power: float = 1.0) -> Tensor:
    weights = _ordinal_weights(_distance(tp.shape[-1]), power).to(tp.device)
    by_chance = total(((tp + fn).double() @ weights) * (tp + fp))
    return 1 - cost / by_chance.to(cost)


def _distance(num_classes: int) -> Tensor:  # (C, C): |i - j|
    label = torch.arange(num_classes, dtype=torch.float64, device="cpu")
    return (label[:, None] - label).abs()


SIGNED = (-1.0, 1.0)
POSITIVE = (0.0, torch.inf)
REAL = (-torch.inf, torch.inf)

# fmt: off
SCORES = (
    Score(("diag_mass",), "Diagonal of Normalized Confusion Matrix", lambda tp: tp, True, None),
    Score(("prevalence",), "Marginal Distribution of Condition", lambda tp, fn: tp + fn, True, None),
    Score(("model_bias",), "Marginal Distribution of Predictions", lambda tp, fp: tp + fp, True, None),
    Score(("true_positive_rate", "sensitivity", "recall", "hit_rate", "tpr"),
          "True Positive Rate", lambda tp, fn: tp / (tp + fn), sklearn_equivalent="recall_score"),
    Score(("false_negative_rate", "miss_rate", "fnr"),
          "False Negative Rate", lambda tp, fn: fn / (tp + fn), True, False),
    Score(("positive_predictive_value", "precision", "ppv"),
          "Positive Predictive Value", lambda tp, fp: tp / (tp + fp), sklearn_equivalent="precision_score"),
    Score(("false_discovery_rate", "fdr"), "False Discovery Rate", lambda tp, fp: fp / (tp + fp), True, False),
    Score(("false_positive_rate", "fall-out", "fall_out", "fpr"),
          "False Positive Rate", lambda fp, tn: fp / (fp + tn), True, False),
    Score(("true_negative_rate", "specificity", "selectivity", "tnr"),
          "True Negative Rate", lambda fp, tn: tn / (fp + tn)),
    Score(("false_omission_rate", "for"), "False Omission Rate", lambda fn, tn: fn / (fn + tn), True, False),
    Score(("negative_predictive_value", "npv"), "Negative Predictive Value", lambda fn, tn: tn / (fn + tn)),
    Score(("acc", "accuracy"), "Accuracy", _accuracy, False, sklearn_equivalent="accuracy_score"),
    Score(("ba", "balanced_accuracy"), "Balanced Accuracy", _balanced_accuracy, False, True,
          lambda C, adjusted: SIGNED if adjusted else (0.0, 1.0), "balanced_accuracy_score"),
    Score(("mcc", "matthews_corrcoef", "matthews_correlation_coefficient", "phi", "phi_coefficient"),
          "Matthews Correlation Coefficient", _mcc, False, True, SIGNED, "matthews_corrcoef"),
    Score(("kappa", "cohen_kappa"), "Cohen's Kappa",
          lambda tp, fp, fn, tn: total(tp * tn - fp * fn) / total((tp + fn) * (fn + tn)),
          False, True, SIGNED, "cohen_kappa_score"),
    Score(("f1",), "F1-score", lambda tp, fp, fn: 2 * tp / (2 * tp + (fp + fn)), sklearn_equivalent="f1_score",
          zero_division=0.0),
    Score(("fbeta",), "FBeta-score", _fbeta, sklearn_equivalent="fbeta_score", zero_division=0.0),
    Score(("informedness", "youdenj", "youden_j", "bookmaker_informedness", "bm"), "Informedness",
          lambda tp, fp, fn, tn: (tp * tn - fp * fn) / ((tp + fn) * (fp + tn)), bounds=SIGNED),
    Score(("markedness", "delta_p"), "Markedness",
          lambda tp, fp, fn, tn: (tp * tn - fp * fn) / ((tp + fp) * (fn + tn)), bounds=SIGNED),
    Score(("p4",), "P4-score", _p4, zero_division=0.0),
    Score(("jaccard", "jaccard_index", "threat_score", "critical_success_index"),
          "Jaccard Index", lambda tp, fp, fn: tp / (tp + fp + fn), sklearn_equivalent="jaccard_score"),
    Score(("plr", "positive_likelihood_ratio"), "Positive Likelihood Ratio",
          _plr, True, True, POSITIVE, "class_likelihood_ratios"),
    Score(("log_plr", "lplr", "log_positive_likelihood_ratio"), "Log Positive Likelihood Ratio", _log_plr, bounds=REAL),
    Score(("negative_likelihood_ratio", "nlr"), "Negative Likelihood Ratio",
          _nlr, True, False, POSITIVE, "class_likelihood_ratios"),
    Score(("lnlr", "log_negative_likelihood_ratio", "log_nlr"), "Log Negative Likelihood Ratio",
          _log_nlr, True, False, REAL),
    Score(("dor", "diagnostic_odds_ratio"), "Diagnostic Odds Ratio",
          lambda tp, fp, fn, tn: tp / fp * (tn / fn), bounds=POSITIVE),
    Score(("log_dor", "ldor", "log_diagnostic_odds_ratio"), "Log Diagnostic Odds Ratio",
          lambda tp, fp, fn, tn: tp.log() + tn.log() - fp.log() - fn.log(), bounds=REAL),
    Score(("prev_thresh", "pt", "prevalence_threshold"), "Prevalence Threshold", _prevalence_threshold, True, False),
    Score(("precision_gain",), "Precision Gain", lambda tp, fp, fn, tn: _gain(tp, fp, fn, tn, fp)),
    Score(("recall_gain",), "Recall Gain", lambda tp, fp, fn, tn: _gain(tp, fp, fn, tn, fn)),
    Score(("f1_gain",), "F1 Gain", lambda tp, fp, fn, tn: _fbeta_gain(tp, fp, fn, tn)),
    Score(("fbeta_gain",), "FBeta Gain", _fbeta_gain),
    Score(("mean_absolute_error", "mae"), "Mean Absolute Error", lambda cost: cost, False, False,
          lambda C: (0.0, C - 1.0), "mean_absolute_error", lambda distance: distance),
    Score(("mean_squared_error", "mean_square_error", "mse"), "Mean Squared Error", lambda cost: cost, False, False,
          lambda C: (0.0, (C - 1.0) ** 2), "mean_squared_error", lambda distance: distance**2),
    Score(("root_mean_squared_error", "root_mean_square_error", "rmse"), "Root Mean Squared Error",
          lambda mse: mse.sqrt(), False, False, lambda C: (0.0, C - 1.0), "root_mean_squared_error"),
    Score(("offby1", "offbyone", "1off", "oneoff", "adjacc", "adjacent_accuracy"), "Off-by-One Accuracy",
          lambda cost: cost, False, weights=lambda distance: distance <= 1),
    Score(("polynomial_weighted_kappa", "pwkappa"), "Polynomial Weighted Kappa",
          _ordinal_kappa, False, True, SIGNED, None, _ordinal_weights),
)
# fmt: on


class TableMetric(ConfusionMetric):
    """A metric that a row of `SCORES` describes."""

    row: Score

    def __init__(self, **options: Any) -> None:
        super().__init__()
        score, options = self.row, self.checked(options)
        self.zero_division = options.pop("zero_division")
        self.compute_metric = functools.partial(score.formula, **options)
        bounds, weights = score.bounds, score.weights
        self._bounds_of = None
        if callable(bounds):
            self._bounds_of = functools.partial(bounds, **options)
            self.bounds = self._bounds_of(torch.inf)
        else:
            self.bounds = bounds
        if weights:
            cost = LinearForm(lambda num_classes: weights(_distance(num_classes), **options))
            self.parents = {"cost": cost, **self.parents}

    def bounds_of(self, num_classes: int) -> tuple[float, float]:
        return self.bounds if self._bounds_of is None else self._bounds_of(num_classes)

    def evaluate(self, values: Values) -> Tensor:  # the formulas here need no array subclass
        result = self.compute_metric(*(values[parent] for parent in self.parents.values()))
        if math.isnan(self.zero_division):
            return result
        observed = ~values.like[:, :1].isnan()  # a matrix of zeros has no values at all
        return torch.where(result.isnan() & observed, self.zero_division, result)


for _row in SCORES:
    TableMetric.of_row(
        _row,
        1 if _row.weights else 0,  # the cost
        options={"zero_division": _row.zero_division},
        is_multiclass=not _row.per_class,
        bounds=_row.bounds,
        sklearn_equivalent=_row.sklearn_equivalent,
        higher_is_better=_row.higher_is_better,
    )
