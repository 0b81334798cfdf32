"""Metrics of independent Dirichlet draws in numpy with absent or never predicted classes, and tests of their law."""

import numpy as np
import scipy.stats

METRICS = "ppv f1 jaccard markedness fpr tnr log_dor".split()
NAMES = [*METRICS, *(f"{name}@macro" for name in METRICS)]


def counts_of(C, table):
    """Build counts of 20 items per class where the last class is not predicted, or the second half is absent."""
    rng = np.random.default_rng(C)
    counts = np.diag(np.full(C, 15.0))
    for counts_row in counts:
        np.add.at(counts_row, rng.integers(0, C, 5), 1)
    if table == "unpredicted":
        counts[:, 0] += counts[:, -1]
        counts[:, -1] = 0
    else:
        counts[C // 2 :] = 0
        counts[:, C // 2 :] = 0
    return counts


def log_gammas(rng, alpha, S):
    """Sample (S, *alpha.shape) logarithms, with Gamma(a) = Gamma(1 + a) U^(1/a)."""
    shape = S, *alpha.shape
    with np.errstate(divide="ignore"):
        return np.log(rng.standard_gamma(alpha + 1, shape)) - rng.standard_exponential(shape) / alpha


def normalize(logs, dtype="float64"):
    """Scale rows to a sum of 1; values that are not normal numbers of the dtype become 0."""
    logs = logs - logs.max(-1, keepdims=True)
    x = np.where(logs > np.log(np.finfo(dtype).tiny), np.exp(logs), 0)
    return x / x.sum(-1, keepdims=True)


def reference_sums(counts, S, dtype, seed=1):
    """Sample tp, fn, fp and tn of S independent Dirichlet draws, (S, C) each."""
    rng, C = np.random.default_rng(seed), len(counts)
    prior = np.full((C, C), 1 / (2 * C * (C - 1)))
    np.fill_diagonal(prior, 1 / (2 * C))
    cells = counts + prior
    prevalence = normalize(log_gammas(rng, counts.sum(1) + 1 / C, S), dtype)
    right = cells.diagonal()
    split = normalize(log_gammas(rng, np.stack([right, cells.sum(1) - right], -1), S), dtype)
    tp, fn = np.moveaxis(prevalence[..., None] * split, -1, 0)
    fp, tn = (np.zeros((S, C)) for _ in range(2))
    for i in range(C):
        others = np.arange(C) != i
        x = normalize(log_gammas(rng, cells[i, others], S))
        fp[:, others] += fn[:, i, None] * x
        tn[:, others] += fn[:, i, None] * sums_of_others(x)
    tn += sums_of_others(tp)
    return [x.astype(dtype) for x in (tp, fn, fp, tn)]


def sums_of_others(x):
    zeros = np.zeros((len(x), 1))
    before = np.concatenate([zeros, x[:, :-1].cumsum(1)], 1)
    return before + np.concatenate([x[:, :0:-1].cumsum(1)[:, ::-1], zeros], 1)


def reference_metrics(tp, fn, fp, tn):
    with np.errstate(all="ignore"):
        values = {
            "ppv": tp / (tp + fp),
            "f1": np.nan_to_num(2 * tp / (2 * tp + fp + fn)),
            "jaccard": tp / (tp + fp + fn),
            "markedness": tp / (tp + fp) - fn / (fn + tn),
            "fpr": fp / (fp + tn),
            "tnr": tn / (fp + tn),
            "log_dor": np.log(tp) + np.log(tn) - np.log(fp) - np.log(fn),
        }
        macro = {f"{name}@macro": x.mean(1, keepdims=True) for name, x in values.items()}
    return values | macro


def assert_same_law(actual, expected):
    """Assert that NaN is equally probable in both, and that the other values have the same distribution."""
    nan_counts = [int(np.isnan(x).sum()) for x in (actual, expected)]
    sizes = [len(actual), len(expected)]
    if 0 < sum(nan_counts) < sum(sizes):
        table = [[n, size - n] for n, size in zip(nan_counts, sizes, strict=True)]
        assert scipy.stats.fisher_exact(table).pvalue > 1e-5
    else:
        assert nan_counts[0] / sizes[0] == nan_counts[1] / sizes[1]
    pair = [np.nan_to_num(x[~np.isnan(x)].astype(float), posinf=1e300, neginf=-1e300) for x in (actual, expected)]
    if min(map(len, pair)) > 20:
        assert scipy.stats.ks_2samp(*pair, method="asymp").pvalue > 1e-5
