"""Rows of the association domain."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from tensormetrics import association, uncertainty
from tensormetrics.association import functional
from tensormetrics.association.resampling.folds import deal_words
from tensormetrics.core.metric.base import Metric

from . import association_oracle as oracle
from .case import FunctionCase, LeftOut, MetricCase

LEFT_OUT = LeftOut("an item without a score leaves the mean and is counted in not_finite")


def levels_of(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray) -> list[float]:
    """Compute the three levels, one cosine at a time (Wolfe et al. 2024): 1, then 2, 4 and 4 values."""
    pairs = [[oracle.cos(v, w) for v in target for w in attributes] for target in (x, y) for attributes in (a, b)]
    by_target = [oracle.sc_weat(np.mean([oracle.unit(v) for v in target], 0)[None], a, b, 1)[0] for target in (x, y)]
    effect = oracle.weat_effect_size(x, y, a, b, 1)
    return [effect, *by_target, *map(np.mean, pairs), *(np.std(pair, ddof=1) for pair in pairs)]


def log_probabilities(generator: Generator, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.rand(*shape, generator=generator).clamp(min=1e-3).log() for _ in range(4))


def bias_of_sentences(x: Tensor, x_prior: Tensor, y: Tensor, y_prior: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return (functional.lpbs(x, x_prior, y, y_prior, mask=mask),)


def sentences(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    mask = torch.rand(*batch_shape, 6, generator=generator) < 0.7
    return *log_probabilities(generator, (*batch_shape, 6)), mask.index_fill(-1, torch.tensor([0]), True)


def pad_sentences(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
    pad = torch.nn.functional.pad
    *scores, mask = arguments
    return *(pad(score, (2, 3), value=garbage) for score in scores), pad(mask, (2, 3))


def word_vectors(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Sample vectors of two clusters, and their labels, some of which are wrong."""
    cluster = torch.rand(*batch_shape, generator=generator) < 0.5
    is_other = torch.rand(*batch_shape, generator=generator) < 0.15
    vectors = torch.randn(*batch_shape, 5, generator=generator) + 3 * cluster.unsqueeze(-1)
    return vectors, (cluster ^ is_other).long()


def recovered_classes(vectors: np.ndarray, labels: np.ndarray) -> list[float]:
    """Compute the accuracies of scikit-learn's classifiers, one fold at a time."""
    import sklearn.cluster
    import sklearn.linear_model
    import sklearn.neighbors

    fold = deal_words(torch.tensor(labels), torch.arange(len(labels)), 0)[0].numpy() % 5
    scaled = (vectors - vectors.mean(0)) / np.sqrt(vectors.var(0).mean())
    is_correct = np.zeros((4, len(labels)))
    for k in range(5):
        train, test = fold != k, fold == k
        probe = sklearn.linear_model.LogisticRegression(tol=1e-10).fit(scaled[train], labels[train])
        votes = sklearn.neighbors.KNeighborsClassifier(15, metric="cosine").fit(vectors[train], labels[train])
        means = sklearn.cluster.KMeans(2, n_init=10, random_state=0).fit(vectors[train])
        majority_labels = [np.bincount(labels[train][means.labels_ == c]).argmax() for c in range(2)]
        largest = np.bincount(labels[train]).argmax()
        predictions = probe.predict(scaled), np.array(majority_labels)[means.predict(vectors)], votes.predict(vectors)
        for row, predicted in zip(is_correct, [*predictions, np.full_like(labels, largest)], strict=True):
            row[test] = (predicted == labels)[test]
    return is_correct.mean(1).tolist()


def accuracies(*rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(functional.residual_bias(*rows).values())


def pair_scores(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Sample scores with ties, and a mask of the pairs."""
    mask = torch.rand(*batch_shape, 6, generator=generator) < 0.7
    more, less = (torch.randint(-4, 0, (*batch_shape, 6), generator=generator).double() for _ in range(2))
    return more, less, mask.index_fill(-1, torch.tensor([0]), True)


def preference_of_pairs(more: Tensor, less: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    return (functional.pair_preference(more, less, mask=mask),)


def preferred_fraction(more: np.ndarray, less: np.ndarray) -> list[float]:
    return [np.mean([1.0 if x > y else 0.5 if x == y else 0.0 for x, y in zip(more, less, strict=True)])]


def query_case(
    metric: Callable[[], Metric], names: str, score: Callable[..., float], rtol: float = 1e-12
) -> MetricCase:
    """Make a row whose items are queries of four words per set, and three sets per group g, h; scored one by one."""

    def inputs(generator: Generator, items: int) -> tuple[Tensor, ...]:
        shapes = [(items, 3, 4, 5) if name in "gh" else (items, 4, 5) for name in names]
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    def mean_score(*sets: np.ndarray) -> list[float]:
        return [np.mean([score(*query) for query in zip(*sets, strict=True)])]

    narrow, *others = inputs(Generator(), 2)
    bad = ((narrow[..., :4], *others), (narrow[0, 0], *others))
    # forward returns the score of each item
    return MetricCase(metric, inputs, mean_score, rtol, False, bad, not_finite=LEFT_OUT)


def ceat_case() -> MetricCase:
    """Make a row whose items are samples; their effect sizes are combined (DerSimonian & Laird 1986)."""
    case = query_case(association.CEAT, "xyab", lambda *sets: 0.0)

    def combined_effect(*sets: np.ndarray) -> list[float]:
        samples = list(zip(*sets, strict=True))
        variances = [np.var([oracle.association(w, a, b) for w in (*x, *y)], ddof=1) for x, y, a, b in samples]
        effects = [oracle.weat_effect_size(*sample, 1) for sample in samples]
        return [oracle.random_effects(np.array(effects), np.array(variances))[0]]

    return dataclasses.replace(case, oracle=combined_effect)


METRICS = {
    "WEAT": query_case(association.WEAT, "xyab", oracle.weat),
    "RIPA": query_case(association.RIPA, "xya", oracle.ripa),
    "RND": query_case(association.RND, "xya", oracle.rnd),
    "ECT": query_case(association.ECT, "xya", oracle.ect),
    "MAC": query_case(association.MAC, "tg", oracle.mac),
    "SCWEAT": query_case(association.SCWEAT, "wab", lambda *sets: oracle.sc_weat(*sets).mean()),
    "MLEAT": query_case(association.MLEAT, "xyab", lambda *sets: levels_of(*sets)[0]),
    "LPBS": MetricCase(
        association.LPBS,
        lambda generator, items: log_probabilities(generator, (items,)),
        lambda x, x_prior, y, y_prior: [
            np.mean([np.log(np.exp(p - q) / np.exp(r - s)) for p, q, r, s in zip(x, x_prior, y, y_prior, strict=True)])
        ],
        bad=((torch.zeros(3), torch.zeros(2), torch.zeros(3), torch.zeros(3)), (torch.zeros(3, 2),) * 4),
        not_finite=LEFT_OUT,
    ),
    "PairPreference": MetricCase(
        association.PairPreference,
        lambda generator, items: tuple(torch.randint(-4, 0, (items,), generator=generator).double() for _ in range(2)),
        preferred_fraction,
        bad=((torch.zeros(3), torch.zeros(2)), (torch.zeros(3, 2), torch.zeros(3, 2))),
        not_finite=LEFT_OUT,
    ),
    "GWEAT": query_case(association.GWEAT, "gh", oracle.gweat),
    "SAME": query_case(
        lambda: association.SAME(weighting="unit"), "tg", lambda *sets: oracle.same(*sets, weighting="unit")
    ),
    "DirectBias": query_case(association.DirectBias, "tg", oracle.direct_bias),
    "CEAT": ceat_case(),
    "RNSB": query_case(association.RNSB, "tab", oracle.rnsb, rtol=1e-7),
    "ResidualBias": MetricCase(
        association.ResidualBias,
        lambda generator, items: word_vectors(generator, (items,)),
        recovered_classes,
        bad=((torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64)), (torch.zeros(3), torch.zeros(3).long())),
        not_finite="nan",
    ),
}


def word_set_case(sets: str, function: Callable[..., Any], compiles: bool = True, **options: Any) -> FunctionCase:
    """Make a row for a score of word sets: p p are pairs, P groups of tuples, other capitals groups of sets."""
    shapes = [(3, 6, 5) if s.isupper() else (6, 5) for s in sets]

    def inputs(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        shape_of = dict(zip(sets, shapes, strict=True))
        masks = [torch.rand(*batch_shape, *shape[:-1], generator=generator) < 0.7 for shape in shape_of.values()]
        if "P" in sets:  # all words of a tuple are valid, or none
            masks[-1] = masks[-1][..., :1, :].expand_as(masks[-1])
        return *(torch.randn(*batch_shape, *shape, generator=generator) for shape in shapes), *masks

    def call(*arguments: Tensor) -> tuple[Tensor, ...]:
        masks = dict(zip(dict.fromkeys(sets), arguments[len(sets) :], strict=True))
        word_sets_with_masks = (functional.WordSet(t, masks[s]) for s, t in zip(sets, arguments, strict=False))
        results = function(*word_sets_with_masks, **options)
        return tuple(results) if isinstance(results, tuple | uncertainty.Estimate) else (results,)

    def pad(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
        wide = (torch.nn.functional.pad(words, (0, 0, 2, 3), value=garbage) for words in arguments[: len(sets)])
        return (*wide, *(torch.nn.functional.pad(mask, (2, 3)) for mask in arguments[len(sets) :]))

    def unpad(results: tuple[Tensor, ...], *_: Tensor) -> tuple[Tensor, ...]:
        return tuple(r[..., 2:-3] for r in results) if function is functional.sc_weat else results

    return FunctionCase(call, inputs, pad, unpad, compiles, rtol=1e-9, not_finite="nan")


def score_case(sets: int, function: Callable[..., Tensor], **options: Any) -> FunctionCase:
    """Make a row for a p-value of sets of scores, each with a mask."""

    def inputs(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
        return (
            *(torch.randn(*batch_shape, 6, generator=generator) for _ in range(sets)),
            *(torch.rand(*batch_shape, 6, generator=generator) < 0.7 for _ in range(sets)),
        )

    def call(*arguments: Tensor) -> tuple[Tensor, ...]:
        return (function(*map(functional.WordSet, arguments[:sets], arguments[sets:]), **options),)

    def pad(garbage: float, *arguments: Tensor) -> tuple[Tensor, ...]:
        pad = torch.nn.functional.pad
        wide = (pad(scores, (2, 3), value=garbage) for scores in arguments[:sets])
        return (*wide, *(pad(mask, (2, 3)) for mask in arguments[sets:]))

    return FunctionCase(call, inputs, pad, not_finite="nan")


def pools(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randn(*batch_shape, 4, contexts, 5, generator=generator) for contexts in (3, 2, 4, 1))


def effects(generator: Generator, batch_shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    return torch.randn(*batch_shape, 7, generator=generator), torch.rand(*batch_shape, 7, generator=generator) + 0.1


def combined(*effects_and_variances: Tensor) -> tuple[Tensor, ...]:
    return tensors_of(functional.random_effects(*effects_and_variances))


def tensors_of(estimate: uncertainty.Estimate) -> tuple[Tensor, ...]:
    value, low, high = estimate  # Dynamo of torch 2.11 unpacks it here, but not as `*estimate` of a display
    return value, low, high, *estimate.details.values()


NO_WEIGHT = LeftOut("an effect of infinite variance has no weight")
FUNCTIONS = {
    "weat": word_set_case("xyab", functional.weat),
    "weat_effect_size": word_set_case("xyab", functional.weat_effect_size),
    "sc_weat": word_set_case("wab", functional.sc_weat),
    "mean_sc_weat": word_set_case("wab", functional.mean_sc_weat),
    "ml_eat": word_set_case("xyab", functional.ml_eat),
    "lpbs": FunctionCase(bias_of_sentences, sentences, pad_sentences, compiles=True, rtol=1e-12, not_finite="nan"),
    "pair_preference": FunctionCase(
        preference_of_pairs, pair_scores, pad_sentences, compiles=True, rtol=1e-12, not_finite="nan"
    ),
    "rnd": word_set_case("xya", functional.rnd),
    "rnd_cos": word_set_case("xya", functional.rnd, distance="cos"),
    "ripa": word_set_case("ppa", functional.ripa),
    "ect": word_set_case("xya", functional.ect),
    "mac": word_set_case("tA", functional.mac),
    "rnsb": word_set_case("tab", functional.rnsb, compiles=False),
    "gweat": word_set_case("XA", functional.gweat),
    "same": word_set_case("tG", functional.same),
    "direct_bias": word_set_case("tP", functional.direct_bias, n_components=2),
    "residual_bias": FunctionCase(
        accuracies, lambda g, batch_shape: word_vectors(g, (*batch_shape, 30)), rtol=1e-9, not_finite="nan"
    ),
    "ceat": FunctionCase(
        lambda *p: tensors_of(functional.ceat(*p, samples=20)), pools, compiles=True, rtol=1e-9, not_finite="nan"
    ),
    "random_effects": FunctionCase(
        combined,
        effects,
        compiles=True,
        rtol=1e-12,
        not_finite=lambda position, value: NO_WEIGHT if position == 1 and value == torch.inf else "nan",
    ),
    "permutation_p_value": score_case(2, functional.permutation_p_value),
    "permutation_p_value_drawn": score_case(2, functional.permutation_p_value, method="approximate", replicates=99),
    "sign_flip_p_value": score_case(1, functional.sign_flip_p_value),
    "sign_flip_p_value_drawn": score_case(1, functional.sign_flip_p_value, method="approximate", replicates=99),
    "target_permutation_p_value": word_set_case(
        "xya",
        functools.partial(functional.target_permutation_p_value, functional.rnd),
        compiles=False,
        method="approximate",
        replicates=20,
    ),
    "group_permutation_p_value": word_set_case(
        "XA", functional.group_permutation_p_value, compiles=False, replicates=20
    ),
    "bootstrap_interval": word_set_case(
        "xyab", functools.partial(functional.bootstrap_interval, functional.weat), compiles=False, replicates=20
    ),
}
