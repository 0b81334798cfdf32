"""Invariances and common properties of the scores of AccuracyCalculator."""

import pytest
import torch
from retrieval_oracle import KNN, data

from tensormetrics.retrieval import AccuracyCalculator, PrecisionAtK

NAMES = [
    *(*KNN, "hit_rate_at_5", "mean_auroc", "mean_average_precision_at_4", "mean_inp", "ndcg", "ndcg_at_3"),
    *("nearest_centroid_accuracy", "precision_at_7", "recall_at_5"),
]
RANKS = [name for name in NAMES if name != "nearest_centroid_accuracy"]


@pytest.fixture
def rows(device):
    return tuple(tensor.to(device) for tensor in data())


@pytest.fixture
def scores(rows):
    return AccuracyCalculator(NAMES).get_accuracy(*rows)


def test_scores_of_random_data_lie_between_0_and_1(scores):
    assert scores.keys() == set(NAMES) and all(0 < score < 1 for score in scores.values())


def test_scores_ignore_item_order(rows, scores):
    order = torch.randperm(60)
    got = AccuracyCalculator(NAMES).get_accuracy(rows[0][order], rows[1][order])
    assert got == pytest.approx(scores, rel=1e-14)


def test_scores_ignore_reference_order(rows):
    x, labels = rows
    order = torch.randperm(40) + 20
    expected = AccuracyCalculator(NAMES).get_accuracy(x[:20], labels[:20], x[20:], labels[20:])
    assert AccuracyCalculator(NAMES).get_accuracy(x[:20], labels[:20], x[order], labels[order]) == expected


def test_scores_ignore_class_names_and_label_dtype(rows, scores):
    x, labels = rows
    for renamed in (-7 * labels, labels * 2**40, labels * 0.1 - 3, labels.short()):
        assert AccuracyCalculator(NAMES).get_accuracy(x, renamed) == pytest.approx(scores, rel=1e-14)


def test_scores_ignore_rotation_shift_and_scale(rows, scores):
    x, labels = rows[0].double(), rows[1]
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q.to(x)
    for moved in (x @ rotation, x + 3, 2.5 * x):
        assert AccuracyCalculator(NAMES).get_accuracy(moved, labels) == pytest.approx(scores, rel=1e-14)


def test_scores_ignore_memory_layout(rows, scores):
    x, labels = rows[0].T.contiguous().T, torch.stack([rows[1], rows[1]], 1)[:, 0]
    assert not x.is_contiguous() and not labels.is_contiguous()
    assert AccuracyCalculator(NAMES).get_accuracy(x, labels) == scores


def test_self_retrieval_spellings_give_equal_scores(rows, scores):
    x, labels = rows
    for arguments, options in (
        ((x, labels, x, labels, True), {}),
        ((x, labels, x.clone(), labels.clone(), True), {}),
        ((x, labels, x, labels), {"self_index": range(60)}),
        ((x, labels), {"self_index": range(60)}),
    ):
        assert AccuracyCalculator(NAMES).get_accuracy(*arguments, **options) == scores


@pytest.mark.parametrize("k", [59, 60, 1_000])
def test_scores_with_k_of_all_references_match_default(k, rows):
    expected = AccuracyCalculator(RANKS).get_accuracy(*rows)
    assert AccuracyCalculator(RANKS, k=k).get_accuracy(*rows) == pytest.approx(expected, rel=1e-14)


def test_per_class_scores_weighted_by_queries_give_the_mean(rows, scores):
    calculator = AccuracyCalculator(NAMES, return_per_class=True)
    per_class = calculator.get_accuracy(*rows)
    sizes = (rows[1] == calculator.class_labels[:, None]).sum(1).double()
    for name, values in per_class.items():
        assert (torch.tensor(values).to(sizes) @ sizes / sizes.sum()).item() == pytest.approx(scores[name])


@pytest.mark.parametrize("name", ["mean_reciprocal_rank", "AMI", "NMI", "r_precision"])
def test_single_metric_matches_value_of_default_calculator(name, rows):
    got = AccuracyCalculator().get_accuracy(*rows)
    assert AccuracyCalculator([name], device="cpu").get_accuracy(*rows) == {name: pytest.approx(got[name], rel=1e-9)}


@pytest.mark.parametrize("metric", [AccuracyCalculator, lambda **options: PrecisionAtK(3, **options)])
def test_update_of_meta_tensors_reads_no_values(metric):
    calculator = metric(device="meta", store_dtype=torch.float16)  # tensors without values
    x, integers = torch.empty(5, 3, device="meta"), torch.empty(5, dtype=torch.int64, device="meta")
    for role in ("both", "query", "reference", "both"):
        calculator.update(x, integers, role=role, ids=integers, cameras=integers)
    assert calculator.embeddings.shape == (10, 3) and calculator.query_ids.shape == (5,)
