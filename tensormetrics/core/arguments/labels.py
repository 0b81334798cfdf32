"""Labels of scores in plots and reports: the names that people write, by the names of the code."""

import re

LABELS = {
    "AdjustedMutualInfo": "AMI",
    "AdjustedRand": "ARI",
    "AveragePrecision": "MAP",
    "AveragePrecisionAtR": "MAP@R",
    "BrierScore": "Brier score",
    "FowlkesMallows": "FMI",
    "InverseNegativePenalty": "mINP",
    "NDCG": "nDCG",
    "NormalizedMutualInfo": "NMI",
    "PrecisionAtK": "precision@k",
    "RPrecision": "R-precision",
    "RecallAtK": "recall@k",
    "ReciprocalRank": "MRR",
    "Rprec": "R-precision",
    "Smatch": "Smatch",
    "TARAtFAR": "TAR@FAR",
    "VMeasure": "V-measure",
    "acc": "accuracy",
    "b_cubed": "B-cubed",
    "blanc": "BLANC",
    "ceaf_e": "CEAF-e",
    "ceaf_m": "CEAF-m",
    "conll": "CoNLL",
    "f1": "F1",
    "far": "FAR",
    "lea": "LEA",
    "map": "MAP",
    "mcc": "MCC",
    "mean_auroc": "mean AUROC",
    "mean_average_precision": "MAP",
    "mean_average_precision_at_r": "MAP@R",
    "mean_inp": "mINP",
    "mean_reciprocal_rank": "MRR",
    "mrr": "MRR",
    "muc": "MUC",
    "ndcg": "nDCG",
    "npv": "NPV",
    "num_rel": "relevant documents",
    "num_rel_ret": "relevant documents retrieved",
    "num_ret": "documents retrieved",
    "ppv": "PPV",
    "r_precision": "R-precision",
    "recip_rank": "MRR",
    "set_F": "set F1",
    "set_P": "set precision",
    "tar": "TAR",
    "tnr": "TNR",
    "tpr": "TPR",
    "v_measure": "V-measure",
}
AT_K = {  # before a depth: "P_10", "ndcg_cut_10", "precision_at_10", "map@10"
    "P": "P",
    "hit": "hit",
    "hit_rate": "hit rate",
    "map": "MAP",
    "mean_average_precision": "MAP",
    "ndcg": "nDCG",
    "precision": "precision",
    "recall": "recall",
    "success": "success",
}
SCORES = "accuracy", "f1", "precision", "recall"  # last parts of names: "muc-f1", "micro-precision"
AVERAGES = "macro", "micro", "weighted"


def label_of(name: str) -> str:
    """Return the label of a score by its name in the code, for example "P@10" of "P_10".

    Other names, such as a user's, are split into words; text in brackets is kept.
    """
    if name in LABELS:
        return LABELS[name]
    if level := re.fullmatch(r"(.+)_level(\d+)", name):
        return f"{label_of(level[1])}, level {level[2]}"
    if bracket := re.fullmatch(r"([^\[]+)(\[.*\])", name):
        return label_of(bracket[1]) + bracket[2]
    if (at_k := re.fullmatch(r"(\w+?)(?:_at_|_cut_|_|@)(\d+|[rRkK])", name)) and at_k[1] in AT_K:
        return f"{AT_K[at_k[1]]}@{at_k[2].upper() if at_k[2] == 'r' else at_k[2]}"
    score, _, average = name.rpartition("@")
    if score and average in AVERAGES:
        return f"{average} {label_of(score)}"
    group, _, score = name.rpartition("-")
    if group and score in SCORES:
        return f"{label_of(group)} {label_of(score)}"
    return _spaced(name)


def _spaced(name: str) -> str:
    text = re.sub(r"_(?![^\[]*\])", " ", name)
    if text.isidentifier():
        text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
        text = re.sub(r"\b[A-Z](?=[a-z])", lambda capital: capital[0].lower(), text)
    return text
