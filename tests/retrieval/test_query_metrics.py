"""Metrics that average over queries: golden values, averages, lone queries, roles, label comparisons."""

import logging
import math
import re

import numpy as np
import pytest
import torch
from retrieval_oracle import CASES, case_rows
from torchmetrics import MetricCollection

from tensormetrics.retrieval import (
    NDCG,
    AccuracyCalculator,
    AveragePrecision,
    AveragePrecisionAtR,
    EmbeddingClusterAccuracy,
    FirstRank,
    HitRate,
    InverseNegativePenalty,
    NearestCentroidAccuracy,
    PrecisionAtK,
    RankingAUROC,
    RecallAtK,
    ReciprocalRank,
    RPrecision,
)
from tensormetrics.retrieval.functional import nearest_centroid
from tensormetrics.retrieval.scores import centroid, query_metric

NAN = math.nan
METRICS = {
    "r_precision": RPrecision,
    "mean_average_precision": AveragePrecision,
    "mean_average_precision_at_r": AveragePrecisionAtR,
    "mean_reciprocal_rank": ReciprocalRank,
    "ndcg": NDCG,
    "median_rank": FirstRank,
    "mean_rank": lambda **options: FirstRank("mean", **options),
    "first_rank": lambda **options: FirstRank("mean", **options),
    "mean_inp": InverseNegativePenalty,
    "nearest_centroid_accuracy": NearestCentroidAccuracy,
}
AT_K = {
    "precision_at_": PrecisionAtK,
    "recall_at_": RecallAtK,
    "hit_rate_at_": HitRate,
    "mean_average_precision_at_": lambda k, **options: AveragePrecision(k, "min", **options),  # as golden.json
    "ndcg_at_": NDCG,
}


def metric_of(name, **options):
    if name in METRICS:
        return METRICS[name](**options)
    prefix, k = re.fullmatch(r"(.*_at_)(\d+)", name).groups()
    return AT_K[prefix](int(k), **options)


def updated(metric, device, *rows):
    metric = metric.to(device)
    metric.update(*(torch.as_tensor(values, device=device) for values in rows))
    return metric


@pytest.mark.parametrize("budget", [None, 300_000])
@pytest.mark.parametrize("case", ["extra/tiny_self", "accuracy/seeded_200x8"])
def test_golden_cases_metrics_match_golden_file(case, budget, device):
    rows = case_rows(CASES[case])
    for name, value in CASES[case]["expected"].items():
        got = updated(metric_of(name, memory_budget=budget), device, *rows).compute()
        assert float(got) == pytest.approx(value, abs=1e-12), name


def test_golden_case_per_query_values_match(device):
    case = CASES["extra/tiny_self"]
    for name, values in case["per_query"].items():
        got = updated(metric_of(name, average="none"), device, *case_rows(case)).compute()
        assert got.tolist() == pytest.approx([NAN if v is None else v for v in values], abs=1e-12, nan_ok=True), name


# Class 7: items 0 to 3, where 0 and 1 are neighbors of each other, while 2 and 3 are neighbors of items of class 3;
# class 3: items 4 and 5; class 5: item 6, lone.
X = torch.tensor([[0.0], [1.0], [10.0], [20.0], [10.5], [20.5], [50.0]])
LABELS = torch.tensor([7, 7, 7, 7, 3, 3, 5])
PRECISIONS = [1, 1, 0, 0, 0, 0, NAN]


@pytest.mark.parametrize(
    ("average", "expected"), [("micro", 2 / 6), ("macro", (2 / 4 + 0) / 2), ("class", [0, 2 / 4]), ("none", PRECISIONS)]
)
def test_precision_averages_match_hand_computed(average, expected, device):
    metric = updated(PrecisionAtK(1, average=average), device, X, LABELS)
    assert metric.compute().tolist() == pytest.approx(expected, nan_ok=True)
    assert metric.class_labels.tolist() == [3, 7]  # sorted, without the lone class


@pytest.mark.parametrize("average", ["micro", "macro", "class"])
def test_averages_of_random_scores_match_numpy(average, device):
    x, labels = torch.randn(90, 3), torch.randint(0, 7, (90,))
    labels[:2] = torch.tensor([20, 21])
    for make in (ReciprocalRank, AveragePrecision, FirstRank, lambda **o: FirstRank("mean", **o), RankingAUROC):
        scores = updated(make(average="none"), device, x, labels).compute().cpu().numpy()
        metric = updated(make(average=average), device, x, labels)
        center = np.median if make is FirstRank else np.mean
        expected = [center(scores[labels.numpy() == c]) for c in range(7)]
        expected = {"micro": center(scores[2:]), "macro": np.mean(expected), "class": expected}[average]
        assert metric.compute().tolist() == pytest.approx(expected, rel=1e-13)


def test_lone_queries_follow_on_lone(device, logged):
    assert float(updated(PrecisionAtK(1, on_lone="zero"), device, X, LABELS).compute()) == pytest.approx(2 / 7)
    zero = updated(PrecisionAtK(1, on_lone="zero", average="class"), device, X, LABELS)
    assert zero.compute().tolist() == [0, 0, 0.5] and zero.class_labels.tolist() == [3, 5, 7]
    message = (
        "on_lone='error': 1 of 7 queries have no relevant reference, the first is query 6; write on_lone='exclude' to "
        "leave them out"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        updated(PrecisionAtK(1, on_lone="error"), device, X, LABELS).compute()
    assert float(updated(PrecisionAtK(1, on_lone="error"), device, X[:6], LABELS[:6]).compute()) == pytest.approx(1 / 3)
    assert logged.messages == []


@pytest.mark.parametrize("average", ["micro", "macro", "class"])
@pytest.mark.parametrize("on_lone", ["exclude", "zero", "error"])
def test_on_lone_metric_and_calculator_agree(average, on_lone, device):
    # Item 4 is the only one of class 1. The others ignore it, so they have no irrelevant reference.
    x, labels = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]), torch.tensor([0, 0, 0, 0, 1, 0])
    ignore = (labels == 0)[:, None] & (labels == 1)
    averages = {"avg_of_avgs": average == "macro", "return_per_class": average == "class"}
    calculator = AccuracyCalculator(["mean_auroc"], on_lone=on_lone, ignore=ignore.to(device), **averages)
    metric = RankingAUROC(on_lone=on_lone, ignore=ignore.to(device), average=average)
    if on_lone == "error":
        for scorer in (calculator, metric):
            with pytest.raises(ValueError, match="^on_lone='error': 1 of 6 queries"):
                updated(scorer, device, x, labels).compute()
        return
    got = updated(metric, device, x, labels).compute()
    torch.testing.assert_close(got, updated(calculator, device, x, labels).compute()["mean_auroc"], equal_nan=True)
    assert torch.equal(metric.class_labels, calculator.class_labels)
    value_of_lone = [0.0] * (on_lone == "zero")
    expected = [NAN, *value_of_lone] if average == "class" else (value_of_lone or [NAN])[0]
    assert got.tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("average", "expected"), [("micro", NAN), ("macro", NAN), ("class", []), ("none", [NAN] * 4)])
def test_metrics_with_nothing_to_score_return_nan_and_warn(average, expected, device, logged):
    for make in (RPrecision, AveragePrecision, FirstRank, NearestCentroidAccuracy, RankingAUROC):
        logged.rows.clear()
        lone = updated(make(average=average), device, X[:4], [0, 1, 2, 3]).compute()
        assert lone.tolist() == pytest.approx(expected, nan_ok=True)
        none = updated(make(average=average), device, X[:0], LABELS[:0]).compute()
        assert none.tolist() == pytest.approx([] if isinstance(expected, list) else NAN, nan_ok=True)
        assert logged.rows == [
            ("tensormetrics.retrieval", logging.WARNING, message)
            for message in (
                "no query has a relevant reference: every metric of neighbors is NaN",
                "there is no query: every metric is NaN",
            )
        ]


@pytest.mark.parametrize(
    "make",
    [lambda **o: PrecisionAtK(3, **o), RPrecision, AveragePrecision, RankingAUROC, NDCG, NearestCentroidAccuracy],
    ids=["precision", "r_precision", "ap", "auroc", "ndcg", "centroid"],
)
@pytest.mark.parametrize("distance", ["l2", "cosine", "ip"])
def test_roles_match_search_without_the_query(make, distance, device):
    # Items 0 to 19 are both, 20 to 29 queries only, 30 to 49 references only; updates are split and out of order.
    x, labels = torch.randn(50, 4, device=device), torch.randint(0, 5, (50,), device=device)
    metric = make(average="none", distance=distance).to(device)
    for rows, role in (
        *((slice(30, 35), "reference"), (slice(0, 8), "both"), (slice(20, 30), "query")),
        *((slice(8, 20), "both"), (slice(35, 50), "reference")),
    ):
        metric.update(x[rows], labels[rows], role=role)
    got = metric.compute().tolist()
    everything = torch.cat([torch.arange(20), torch.arange(30, 50)])
    for query in (0, 7, 19, 20, 29):
        # With a reference set that excludes the query, the roles "query" and "reference" suffice.
        others = everything[everything != query].to(device)
        single = make(average="none", distance=distance).to(device)
        single.update(x[query : query + 1], labels[query : query + 1], role="query")
        single.update(x[others], labels[others], role="reference")
        assert single.compute().tolist() == pytest.approx([got[query]], rel=1e-12, nan_ok=True)


def test_updates_of_one_role_only_are_rejected(device):
    for role, counts, missing_role in (
        ("query", "4 queries and 0", "reference"),
        ("reference", "0 queries and 4", "query"),
    ):
        metric = PrecisionAtK(1).to(device)
        metric.update(X[:4].to(device), LABELS[:4].to(device), role=role)
        message = (
            f"update: got {counts} references, wanted some of each; feed rows with role={missing_role!r} or role='both'"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            metric.compute()
        message = (
            f"embeddings: got shape (2, 3) after (4, 1) with role={role!r}, wanted the same number of columns; call "
            "reset() before changing it"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            metric.update(torch.zeros(2, 3, device=device), LABELS[:2].to(device), role="both")
    with pytest.raises(ValueError, match=r"^role: got 'gallery', wanted one of 'both', 'query', 'reference'$"):
        metric.update(X, LABELS, role="gallery")


@pytest.mark.parametrize("make", [RPrecision, AveragePrecisionAtR, AveragePrecision, RankingAUROC])
def test_label_comparison_of_columns_matches_combined_labels(make, device):
    x, labels = torch.randn(40, 3), torch.randint(0, 4, (40, 2))
    same = updated(make(average="none"), device, x, labels[:, 0] * 4 + labels[:, 1]).compute()
    both_columns = make(average="none", label_comparison_fn=lambda a, b: (a == b).all(1), memory_budget=5_000)
    metric = updated(both_columns, device, x, labels)
    assert metric.compute().tolist() == pytest.approx(same.tolist(), nan_ok=True)
    assert metric.class_labels.tolist() == labels[~same.isnan().cpu()].unique(dim=0).tolist()
    close = updated(make(label_comparison_fn=lambda a, b: (a - b).abs() < 1), device, x, labels[:, 0] / 3.0)
    assert 0 < float(close.compute()) < 1
    with pytest.raises(ValueError, match=r"^labels: got shape \(40, 2\), wanted \(N,\); for more columns give a"):
        updated(make(), device, x, labels)


METRICS_OF_SEVERAL_K = {
    "precision": PrecisionAtK,
    "recall": RecallAtK,
    "hit_rate": HitRate,
    "average_precision": AveragePrecision,
    "reciprocal_rank": ReciprocalRank,
    "ndcg": NDCG,
}


@pytest.mark.parametrize("average", ["micro", "macro", "class", "none"])
@pytest.mark.parametrize("on_lone", ["exclude", "zero"])
@pytest.mark.parametrize("name", METRICS_OF_SEVERAL_K)
def test_several_k_match_single_k_metrics(name, average, on_lone, device):
    options = {"average": average, "on_lone": on_lone, "memory_budget": 3_000}
    rows = [column[:60] for column in case_rows(CASES["accuracy/seeded_200x8"])]  # 60 tiles with this small budget
    several = updated(METRICS_OF_SEVERAL_K[name]((5, 1, 3), **options), device, *rows)
    got = several.compute()
    assert list(got) == [f"{name}_at_{k}" for k in (5, 1, 3)]
    for k in (5, 1, 3):
        single = updated(METRICS_OF_SEVERAL_K[name](k, **options), device, *rows)
        torch.testing.assert_close(got[f"{name}_at_{k}"], single.compute(), rtol=0, atol=0, equal_nan=True)
        if average != "none":
            actual, expected = (metric.interval(replicates=20) for metric in (several, single))
            torch.testing.assert_close(tuple(actual[f"{name}_at_{k}"]), tuple(expected), rtol=1e-12, atol=0)


def test_several_k_search_once_to_the_largest(device, monkeypatch):
    depths = []
    monkeypatch.setattr(query_metric, "tiles_of", lambda inputs, ranking: depths.append(ranking.depth) or ())
    updated(RecallAtK([2, 7, 4]), device, X, LABELS).compute()
    assert depths == [7]


def test_collection_metrics_store_one_copy_of_rows(device):
    others = AveragePrecision(), HitRate(1), FirstRank(), NearestCentroidAccuracy()
    collection = MetricCollection([AccuracyCalculator(), EmbeddingClusterAccuracy(), *others]).to(device)
    for rows in (slice(0, 3), slice(3, 7)):
        collection.update(X[rows].to(device), LABELS[rows].to(device))
    assert len(collection.compute_groups) == 1
    values = collection.compute()
    assert float(values["HitRate"]) == pytest.approx(1 / 3)
    assert values["EmbeddingClusterAccuracy"] == updated(EmbeddingClusterAccuracy(), device, X, LABELS).compute()
    assert values["r_precision"] == AccuracyCalculator().get_accuracy(X.to(device), LABELS)["r_precision"]
    stored = {metric.embeddings.data_ptr() for metric in collection.values(copy_state=False)}
    assert len(stored) == 1


def test_precision_follows_ties_and_ignore(device):
    x, labels = torch.zeros(6, 2), torch.tensor([0, 0, 0, 1, 1, 1])  # all distances are equal
    for ties, expected in (("optimistic", 1.0), ("pessimistic", 0.0)):
        assert float(updated(PrecisionAtK(2, ties=ties), device, x, labels).compute()) == expected
        calculator = AccuracyCalculator(["precision_at_2"], ties=ties)
        assert calculator.get_accuracy(x.to(device), labels) == {"precision_at_2": expected}
    ignore = torch.zeros(6, 6, dtype=torch.bool, device=device)
    ignore[:, :3] = True  # leaves three queries without a relevant reference
    metric = updated(PrecisionAtK(2, ignore=ignore, average="none"), device, x, labels)
    assert metric.compute().tolist()[3:] == [1, 1, 1] and metric.class_labels.tolist() == [1]


@pytest.mark.parametrize("distance", ["l2", "sqeuclidean", "ip", "cosine"])
@pytest.mark.parametrize("itself", [True, False])
def test_nearest_centroid_matches_loop(distance, itself, device):
    x, labels = torch.randn(40, 3, dtype=torch.float64), torch.randint(0, 6, (40,))
    labels[0], x[1] = 9, 0
    reference, reference_labels = (x, labels) if itself else (x[10:] + 0.1, labels[10:])
    inputs = [t.to(device) for t in ((x, labels) if itself else (x, labels, reference, reference_labels))]
    got = nearest_centroid(*inputs, distance=distance, memory_budget=10_000).tolist()

    def unit(rows):
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)

    rows = unit(reference.numpy()) if distance == "cosine" else reference.numpy()
    for i, query in enumerate(unit(x.numpy()) if distance == "cosine" else x.numpy()):
        is_candidate = np.arange(len(rows)) != (i if itself else -1)
        distances = {}
        for label in reference_labels.unique().tolist():
            if (member := is_candidate & (reference_labels.numpy() == label)).any():
                mean = rows[member].mean(0)
                product = query @ mean
                if distance == "cosine":
                    size = np.linalg.norm(query) * np.linalg.norm(mean)
                    product = product / size if size else 0
                distances[label] = -product if distance in ("ip", "cosine") else ((query - mean) ** 2).sum()
        query_label = int(labels[i])
        expected = float(min(distances, key=distances.get) == query_label) if query_label in distances else NAN
        assert got[i] == pytest.approx(expected, nan_ok=True), i


@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("references", ["own items", "references", "some are references"])
def test_nearest_centroid_batch_equals_its_items_bit_for_bit(distance, references, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 2, 20, 5, generator=generator)
    x[1] = x[1].round()  # ties, and rows of zeros
    x[2, 0] *= torch.randn(20, 1, generator=generator).exp() ** 3
    x[2, 1, ::7] = torch.inf
    labels = torch.randint(0, 4, (3, 2, 20), generator=generator)
    labels[0, 0], labels[0, 1] = 1, torch.arange(20)
    inputs = {"query": x, "query_labels": labels}
    if references != "own items":
        others = x[:, :, torch.randperm(20, generator=generator)[:15]]
        inputs |= {"reference": others, "reference_labels": torch.randint(0, 4, (3, 2, 15), generator=generator)}
    if references == "some are references":
        inputs["self_index"] = torch.randint(-1, 15, (3, 2, 20), generator=generator)

    def of_item(*item):
        return nearest_centroid(**{name: value[item] for name, value in inputs.items()}, distance=distance)

    expected = torch.stack([torch.stack([of_item(i, j) for j in range(2)]) for i in range(3)])
    assert 0 < expected.nan_to_num().mean() < 1
    for budget in (None, 2**14):  # all items at once, and one at a time
        got = nearest_centroid(**inputs, distance=distance, memory_budget=budget)
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    monkeypatch.setattr(centroid, "MAX_CELLS", 0)
    got = nearest_centroid(**inputs, distance=distance)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def test_nearest_centroid_ties_select_smaller_label(device):
    x = torch.tensor([[1.0], [-1.0], [1.0], [-1.0], [0.0], [0.0]], device=device)
    labels = torch.tensor([4, 4, 2, 2, 4, 2], device=device)
    query, query_labels = torch.zeros(2, 1, device=device), torch.tensor([2, 4], device=device)
    assert nearest_centroid(query, query_labels, x, labels).tolist() == [1, 0]
    assert nearest_centroid(query, query_labels, x, labels.double()).tolist() == [1, 0]
    assert nearest_centroid(query, query_labels, x[:2], labels[:2]).isnan().tolist() == [True, False]
    assert nearest_centroid(query, query_labels, x[:0], labels[:0]).isnan().all()
