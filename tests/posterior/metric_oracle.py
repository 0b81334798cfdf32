"""Metrics and averagings of one matrix at a time in numpy, in the textbook forms, with 1 - x and expected agreement."""

import math

import numpy as np


def scores(matrix):
    """Compute by canonical name one value per class, or [one value]; the matrix must have no zeros."""
    cells = np.asarray(matrix, dtype=np.float64) / np.sum(matrix)
    C = len(cells)
    p, q, tp = cells.sum(1), cells.sum(0), np.diag(cells)
    tpr, ppv, fpr = tp / p, tp / q, (q - tp) / (1 - p)
    tnr, fnr, npv = 1 - fpr, 1 - tpr, 1 - (p - tp) / (1 - q)
    acc, chance = tp.sum(), (p * q).sum()
    distance = np.abs(np.subtract.outer(range(C), range(C)))
    gain = {
        name: np.clip((x - p) / ((1 - p) * x), 0, 1)
        for name, x in {
            "precision_gain": ppv,
            "recall_gain": tpr,
            "f1_gain": 2 / (1 / ppv + 1 / tpr),
            "fbeta_gain+beta=2.0": 5 / (1 / ppv + 4 / tpr),
        }.items()
    }

    def ordinal_kappa(power):
        weight = np.where(distance > 0, (distance / (C - 1.0)) ** power, 0)
        return [1 - (weight * cells).sum() / (weight * np.outer(p, q)).sum()]

    return {
        "diag_mass": tp,
        "prevalence": p,
        "model_bias": q,
        "true_positive_rate": tpr,
        "false_negative_rate": fnr,
        "positive_predictive_value": ppv,
        "false_discovery_rate": 1 - ppv,
        "false_positive_rate": fpr,
        "true_negative_rate": tnr,
        "false_omission_rate": 1 - npv,
        "negative_predictive_value": npv,
        "acc": [acc],
        "ba": [tpr.mean()],
        "ba+adjusted=True": [(tpr.mean() - 1 / C) / (1 - 1 / C)],
        "mcc": [(acc - chance) / math.sqrt((1 - (p * p).sum()) * (1 - (q * q).sum()))],
        "kappa": [(acc - chance) / (1 - chance)],
        "f1": 2 * ppv * tpr / (ppv + tpr),
        "fbeta+beta=0.5": 1.25 * ppv * tpr / (0.25 * ppv + tpr),
        "fbeta": 2 * ppv * tpr / (ppv + tpr),
        "informedness": tpr + tnr - 1,
        "markedness": ppv + npv - 1,
        "p4": 4 / (1 / ppv + 1 / tpr + 1 / npv + 1 / tnr),
        "jaccard": tp / (p + q - tp),
        "plr": tpr / fpr,
        "log_plr": np.log(tpr / fpr),
        "negative_likelihood_ratio": fnr / tnr,
        "lnlr": np.log(fnr / tnr),
        "dor": (tpr / fpr) / (fnr / tnr),
        "log_dor": np.log((tpr / fpr) / (fnr / tnr)),
        "prev_thresh": (np.sqrt(tpr * fpr) - fpr) / (tpr - fpr),
        **gain,
        "fbeta_gain": gain["f1_gain"],
        "mean_absolute_error": [(cells * distance).sum()],
        "mean_squared_error": [(cells * distance**2).sum()],
        "root_mean_squared_error": [math.sqrt((cells * distance**2).sum())],
        "offby1": [cells[distance <= 1].sum()],
        "polynomial_weighted_kappa": ordinal_kappa(1),
        "polynomial_weighted_kappa+power=0.0": [(acc - chance) / (1 - chance)],
        "polynomial_weighted_kappa+power=2.5": ordinal_kappa(2.5),
    }


def averages(values, prevalence):
    """Compute by canonical name the average of one value per class."""
    values = [float(x) for x in values]
    negative = min(values) < 0
    return {
        "macro": sum(values) / len(values),
        "weighted": sum(p * x for p, x in zip(prevalence, values, strict=True)),
        "select_positive": values[-1],
        "select_positive+positive_class=0": values[0],
        "harmonic": math.nan if negative else len(values) / sum(1 / x if x else math.inf for x in values),
        "geometric": math.nan if negative else math.prod(values) ** (1 / len(values)),
        "min": min(values),
        "max": max(values),
    }


def pooled(matrix):
    """Sum the 2 x 2 one-versus-rest matrices of all classes."""
    cells = np.asarray(matrix, dtype=np.float64)
    tp, total = np.trace(cells), cells.sum()
    wrong = total - tp
    return np.array([[tp, wrong], [wrong, len(cells) * total - tp - 2 * wrong]])
