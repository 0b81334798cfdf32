"""Coreference scores against their definitions, cluster by cluster and link by link."""

import itertools

import numpy as np
import pytest
import scipy.optimize

from tensormetrics.structured import CorefScores, Entity, EntitySet, Mention

Clusters = list[set[int]]


def ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else 0.0


def f1(precision: float, recall: float) -> float:
    return ratio(2 * precision * recall, precision + recall)


def links(clusters: Clusters) -> set[frozenset[int]]:
    return {frozenset(pair) for cluster in clusters for pair in itertools.combinations(sorted(cluster), 2)}


def aligned(pred: Clusters, ref: Clusters, similarity) -> float:
    table = np.array([[similarity(p, r) for r in ref] for p in pred]).reshape(len(pred), len(ref))
    return table[scipy.optimize.linear_sum_assignment(table, maximize=True)].sum()


def muc(clusters: Clusters, others: Clusters) -> tuple[float, float]:
    """Links left after each cluster is cut at the borders of the others; links of the clusters."""
    placed = set().union(*others)
    parts = [sum(bool(c & o) for o in others) + len(c - placed) for c in clusters]
    return sum(len(c) - n for c, n in zip(clusters, parts, strict=True)), sum(len(c) - 1 for c in clusters)


def b_cubed(clusters: Clusters, others: Clusters) -> tuple[float, float]:
    shared = [len(c & o) / len(c) for c in clusters for m in c for o in others if m in o]
    return sum(shared), sum(map(len, clusters))


def lea(clusters: Clusters, others: Clusters) -> tuple[float, float]:
    resolved = 0.0
    for c in clusters:
        if len(c) == 1:
            resolved += c in others
        else:
            resolved += len(c) * len(links([c]) & links(others)) / len(links([c]))
    return resolved, sum(map(len, clusters))


def ceaf_e(clusters: Clusters, others: Clusters) -> tuple[float, float]:
    return aligned(clusters, others, lambda c, o: 2 * len(c & o) / (len(c) + len(o))), len(clusters)


def ceaf_m(clusters: Clusters, others: Clusters) -> tuple[float, float]:
    return aligned(clusters, others, lambda c, o: len(c & o)), sum(map(len, clusters))


def detected_mentions(clusters: Clusters, others: Clusters) -> tuple[float, float]:
    return len(set().union(*clusters) & set().union(*others)), sum(map(len, clusters))


DEFINED = {
    "mentions": detected_mentions,
    "muc": muc,
    "b_cubed": b_cubed,
    "ceaf_m": ceaf_m,
    "ceaf_e": ceaf_e,
    "lea": lea,
}


def blanc(documents: list[tuple[Clusters, Clusters]]) -> list[float]:
    """Precision, recall and F1, of documents whose references have both kinds of links."""
    values = []
    for of_links in (True, False):
        sums = np.zeros(3)
        for pred, ref in documents:
            kinds = []
            for part in (pred, ref):
                all_links = set(map(frozenset, itertools.combinations(sorted(set().union(*part)), 2)))
                kinds.append(links(part) if of_links else all_links - links(part))
            sums += len(kinds[0] & kinds[1]), len(kinds[0]), len(kinds[1])
        precision, recall = ratio(sums[0], sums[1]), ratio(sums[0], sums[2])
        values.append((precision, recall, f1(precision, recall)))
    return np.mean(values, 0).tolist()


def scores(documents: list[tuple[Clusters, Clusters]]) -> dict[str, float]:
    """Numerators and denominators summed over documents."""
    result = dict(zip(("blanc-precision", "blanc-recall", "blanc-f1"), blanc(documents), strict=True))
    for name, count in DEFINED.items():
        inputs = [(count(p, r), count(r, p)) for p, r in documents]
        precision, recall = (ratio(*map(sum, zip(*(part[i] for part in inputs), strict=True))) for i in (0, 1))
        result |= {f"{name}-precision": precision, f"{name}-recall": recall, f"{name}-f1": f1(precision, recall)}
    return result | {"conll-f1": np.mean([result[f"{name}-f1"] for name in ("muc", "b_cubed", "ceaf_e")])}


def some_clusters(random: np.random.Generator) -> tuple[Clusters, Clusters]:
    ref = random.integers(0, 5, 14)
    pred = np.where(random.random(14) < 0.5, random.integers(0, 5, 14), ref)
    inputs = []
    for ids in (pred, ref):
        ids = np.where(random.random(14) < 0.15, -1, ids)
        inputs.append([set(np.flatnonzero(ids == k).tolist()) for k in range(5) if (ids == k).any()])
    return inputs[0], inputs[1]


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_coref_scores_match_definitions(average):
    random = np.random.default_rng(0)
    documents = [some_clusters(random) for _ in range(40)]
    metric = CorefScores(average=average)
    metric.update_clusters(*zip(*documents, strict=True))
    if average == "micro":
        expected = scores(documents)
    else:
        by_document = [scores([document]) for document in documents]
        expected = {name: np.mean([result[name] for result in by_document]) for name in by_document[0]}
    assert {name: float(value) for name, value in metric.compute().items()} == pytest.approx(expected)


def test_coref_scores_of_one_document_ignore_order_and_names():
    pred, ref = some_clusters(np.random.default_rng(1))
    renamed = [[EntitySet([Entity([Mention(m, -m) for m in c]) for c in reversed(part)])] for part in (pred, ref)]
    metric = CorefScores(average="macro")
    metric.update_clusters(*renamed)
    assert {name: float(value) for name, value in metric.compute().items()} == pytest.approx(scores([(pred, ref)]))


def test_memberships_of_entity_sets():
    """CEAF-m is the overlap of entity sets matched one-to-one by the mentions they share."""
    pred, ref = (
        EntitySet([Entity([Mention(m, m) for m in cluster]) for cluster in part])
        for part in some_clusters(np.random.default_rng(3))
    )
    metric = CorefScores(("ceaf_m",))
    metric.update_clusters([pred], [ref])
    overlap = EntitySet.metric.overlap([pred], [ref])
    assert float(metric.compute()["ceaf_m-precision"]) == pytest.approx(float(overlap.cross / overlap.pred))
