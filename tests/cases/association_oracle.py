"""Loops in NumPy float64 that compute the scores of association for one query without padding."""

import numpy as np
import scipy.optimize
import scipy.stats


def unit(v):
    v = np.asarray(v, np.float64)
    length = np.sqrt((v * v).sum())
    return v / length if length else v


def cos(u, v):
    return float(unit(u) @ unit(v))


def association(w, a, b):
    return np.mean([cos(w, v) for v in a]) - np.mean([cos(w, v) for v in b])


def weat(x, y, a, b):
    return sum(association(w, a, b) for w in x) - sum(association(w, a, b) for w in y)


def weat_effect_size(x, y, a, b, correction=0):
    u, v = ([association(w, a, b) for w in s] for s in (x, y))
    return (np.mean(u) - np.mean(v)) / np.std(u + v, ddof=correction)


def sc_weat(w, a, b, correction=0):
    sizes = []
    for word in w:
        u, v = ([cos(word, other) for other in s] for s in (a, b))
        sizes.append((np.mean(u) - np.mean(v)) / np.std(u + v, ddof=correction))
    return np.array(sizes)


def rnd(x, y, a, distance="norm"):
    measure = {"norm": lambda u, v: np.linalg.norm(u - v), "cos": lambda u, v: 1 - cos(u, v), "cos_similarity": cos}[
        distance
    ]
    return np.mean([measure(w, x.mean(0)) - measure(w, y.mean(0)) for w in a])


def ripa(x, y, a, normalize_direction=True):
    products = []
    for u, v in zip(x, y, strict=True):
        if (u != v).any():
            direction = (u - v) / (np.linalg.norm(u - v) if normalize_direction else 1)
            products += [float(w @ direction) for w in a]
    return np.mean(products)


def ect(x, y, a):
    u, v = ([cos(s.mean(0), w) for w in a] for s in (x, y))
    return scipy.stats.spearmanr(u, v).statistic


def mac(t, a):
    return np.mean([1 - np.mean([cos(word, w) for w in group]) for word in t for group in a])


def mean_unit(words):
    return np.mean([unit(w) for w in words], 0)


def gweat(x, a):
    mu, nu = (np.mean([mean_unit(group) for group in s], 0) for s in (x, a))
    return sum((mean_unit(u) - mu) @ (mean_unit(v) - nu) for u, v in zip(x, a, strict=True))


def same(t, groups, weighting="length"):
    directions = [mean_unit(groups[0]) - mean_unit(group) for group in groups[1:]]
    basis = []
    for b in directions:
        for e in basis:
            b = b - (b @ unit(e)) * unit(e)
        basis.append(b)
    weights = [1] + [np.linalg.norm(b) if weighting == "length" else 1 for b in basis[1:]]
    return np.mean([sum(abs(cos(w, b)) * k for b, k in zip(basis, weights, strict=True)) for w in t])


def direct_bias(t, groups, strictness=1.0, n_components=1, direction="pca"):
    if direction == "pca":
        units = np.array([[unit(w) for w in group] for group in groups])
        basis = np.linalg.svd((units - units.mean(0)).reshape(-1, units.shape[-1]))[2][:n_components]
    else:
        basis = [mean_unit(groups[0]) - mean_unit(groups[1])]
    return np.mean([sum(cos(w, g) ** 2 for g in basis) ** (strictness / 2) for w in t])


def negative_probabilities(t, a, b, C=1.0, penalize_intercept=True):
    x, y = np.concatenate([a, b]), np.repeat([1, -1], [len(a), len(b)])

    def loss(v):
        penalized = v if penalize_intercept else v[:-1]
        margin = y * (x @ v[:-1] + v[-1])
        pull = C * y * scipy.special.expit(-margin)
        gradient = np.append(v[:-1], v[-1] * penalize_intercept) - np.append(pull @ x, pull.sum())
        return penalized @ penalized / 2 + C * np.logaddexp(0, -margin).sum(), gradient

    v = scipy.optimize.minimize(loss, np.zeros(x.shape[1] + 1), jac=True, tol=1e-14, options={"maxiter": 10000}).x
    return scipy.special.expit(-(t @ v[:-1] + v[-1]))


def rnsb(t, a, b, C=1.0, penalize_intercept=True):
    p = negative_probabilities(t, a, b, C, penalize_intercept)
    return float(np.sum(p / p.sum() * np.log(p / p.sum() * len(p))))


def random_effects(e, v):
    """Compute the effect, its standard error and the variance between samples."""
    w = 1 / v
    q = np.sum(w * (e - np.sum(w * e) / np.sum(w)) ** 2)
    tau2 = max(0.0, (q - (len(e) - 1)) / (np.sum(w) - np.sum(w**2) / np.sum(w))) if len(e) > 1 else 0.0
    w = 1 / (v + tau2)
    return np.sum(w * e) / np.sum(w), np.sum(w) ** -0.5, tau2
