"""The scores of association written out as loops in numpy float64, for one query without padding."""

import numpy as np
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
    measure = {
        "norm": lambda u, v: np.linalg.norm(u - v),
        "cos": lambda u, v: 1 - cos(u, v),
        "cos_similarity": cos,
    }[distance]
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


def example_metric(x, y, a):
    return cos(y.mean(0), a.mean(0)) - cos(x.mean(0), a.mean(0))
