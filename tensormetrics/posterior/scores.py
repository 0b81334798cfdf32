"""The classification metrics, one row each: functions of the sums of a confusion matrix.

The forms equal the textbook ones, written without 1 - x: since the sums of a class add up to 1, exact zeros and ones
stay exact. x / 0 is inf for x > 0; 0 / 0 is nan where the row does not say otherwise.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .sums import ConfusionSums


class Score(NamedTuple):
    aliases: tuple[str, ...]  # the first is canonical
    full_name: str
    formula: Callable[[ConfusionSums], Tensor]  # (..., C) -> (..., C) if per_class, else (..., 1)
    per_class: bool = True
    higher_is_better: bool | None = True
    need: str = "margins"  # or "diag": no fp, no tn
    bounds: tuple[float, float] = (0.0, 1.0)


def _total(x: Tensor) -> Tensor:  # (..., C) -> (..., 1)
    return x.sum(-1, keepdim=True)


def _share(part: Tensor, rest: Tensor) -> Tensor:
    return torch.where(part == 0, 0, part / (part + rest))


def _determinant(m: ConfusionSums) -> Tensor:
    return m.tp * m.tn - m.fp * m.fn


def _accuracy(m: ConfusionSums) -> Tensor:
    return _total(m.tp) / (_total(m.tp) + _total(m.fn))


def _mcc(m: ConfusionSums) -> Tensor:
    scale = _total(m.condition * m.no_condition) * _total(m.predicted * m.not_predicted)
    return _total(_determinant(m)) / scale.sqrt()


def _log_odds_ratio(m: ConfusionSums) -> Tensor:
    return m.tp.log() + m.tn.log() - m.fp.log() - m.fn.log()


def _prevalence_threshold(m: ConfusionSums) -> Tensor:
    tpr, fpr = m.tp / m.condition, m.fp / m.no_condition
    return fpr.sqrt() / (tpr.sqrt() + fpr.sqrt())


def _gain(m: ConfusionSums, errors: Tensor) -> Tensor:
    """1 - odds * errors / tp: how far above the always-positive classifier."""
    return (1 - m.condition / m.no_condition * errors / m.tp).clamp(0, 1)


def _precision_gain(m: ConfusionSums) -> Tensor:
    return torch.where((m.tp == 0) & (m.fp > 0), 0, _gain(m, m.fp))


SIGNED = (-1.0, 1.0)
POSITIVE = (0.0, torch.inf)
REAL = (-torch.inf, torch.inf)

# fmt: off
SCORES = (
    Score(("diag_mass",), "Diagonal of Normalized Confusion Matrix", lambda m: m.tp, True, None, "diag"),
    Score(("prevalence",), "Marginal Distribution of Condition", lambda m: m.condition, True, None, "diag"),
    Score(("model_bias",), "Marginal Distribution of Predictions", lambda m: m.predicted, True, None),
    Score(("true_positive_rate", "sensitivity", "recall", "hit_rate", "tpr"),
          "True Positive Rate", lambda m: m.tp / m.condition, need="diag"),
    Score(("false_negative_rate", "miss_rate", "fnr"),
          "False Negative Rate", lambda m: m.fn / m.condition, True, False, "diag"),
    Score(("positive_predictive_value", "precision", "ppv"), "Positive Predictive Value", lambda m: m.tp / m.predicted),
    Score(("false_discovery_rate", "fdr"), "False Discovery Rate", lambda m: m.fp / m.predicted, True, False),
    Score(("false_positive_rate", "fall-out", "fall_out", "fpr"),
          "False Positive Rate", lambda m: m.fp / m.no_condition, True, False),
    Score(("true_negative_rate", "specificity", "selectivity", "tnr"),
          "True Negative Rate", lambda m: m.tn / m.no_condition),
    Score(("false_omission_rate", "for"), "False Omission Rate", lambda m: m.fn / m.not_predicted, True, False),
    Score(("negative_predictive_value", "npv"), "Negative Predictive Value", lambda m: m.tn / m.not_predicted),
    Score(("acc", "accuracy"), "Accuracy", _accuracy, False, need="diag"),
    Score(("mcc", "matthews_corrcoef", "matthews_correlation_coefficient", "phi", "phi_coefficient"),
          "Matthews Correlation Coefficient", _mcc, False, bounds=SIGNED),
    Score(("kappa", "cohen_kappa"), "Cohen's Kappa",
          lambda m: _total(_determinant(m)) / _total(m.condition * m.not_predicted), False, bounds=SIGNED),
    Score(("f1",), "F1-score", lambda m: _share(2 * m.tp, m.fp + m.fn)),
    Score(("informedness", "youdenj", "youden_j", "bookmaker_informedness", "bm"),
          "Informedness", lambda m: _determinant(m) / (m.condition * m.no_condition), bounds=SIGNED),
    Score(("markedness", "delta_p"),
          "Markedness", lambda m: _determinant(m) / (m.predicted * m.not_predicted), bounds=SIGNED),
    Score(("p4",), "P4-score", lambda m: _share(4 * m.tp * m.tn, (m.tp + m.tn) * (m.fp + m.fn))),
    Score(("jaccard", "jaccard_index", "threat_score", "critical_success_index"),
          "Jaccard Index", lambda m: m.tp / (m.tp + m.fp + m.fn)),
    Score(("dor", "diagnostic_odds_ratio"),
          "Diagnostic Odds Ratio", lambda m: m.tp * m.tn / (m.fp * m.fn), bounds=POSITIVE),
    Score(("log_dor", "ldor", "log_diagnostic_odds_ratio"),
          "Log Diagnostic Odds Ratio", _log_odds_ratio, bounds=REAL),
    Score(("prev_thresh", "pt", "prevalence_threshold"), "Prevalence Threshold", _prevalence_threshold, True, False),
    Score(("precision_gain",), "Precision Gain", _precision_gain),
    Score(("recall_gain",), "Recall Gain", lambda m: _gain(m, m.fn)),
    Score(("f1_gain",), "F1 Gain", lambda m: _gain(m, (m.fp + m.fn) / 2)),
)
# fmt: on
