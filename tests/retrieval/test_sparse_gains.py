"""Gains as (query, reference, gain) triples: results match a dense table, memory grows with the triples only."""

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import (
    NDCG,
    AccuracyCalculator,
    AveragePrecision,
    RecallAtK,
    TorchKNN,
    average_precision,
    ndcg,
    positive_ranks,
)
from tensormetrics.retrieval.relevance import Relevance

NAMES = ("mean_average_precision", "mean_average_precision_at_r", "mean_auroc", "ndcg", "ndcg_at_5", "recall_at_4")


def data(device):
    """Return rows, dense gains, triples; query 5 has 21 gains, query 3 only that on the diagonal, some gains are 0."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator)
    dense = torch.randint(1, 4, (40, 40), generator=generator) * (torch.rand(40, 40, generator=generator) < 0.1)
    dense[3], dense[5, ::2] = 0, 2
    dense.fill_diagonal_(1)
    has_triple = (dense > 0) | (torch.rand(40, 40, generator=generator) < 0.05)
    query, reference = has_triple.nonzero()[torch.randperm(int(has_triple.sum()), generator=generator)].T
    triples = query, reference, dense[query, reference].double() / 2
    return x.to(device), dense.to(device).double() / 2, tuple(column.to(device) for column in triples)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("depth", [None, 6])
@pytest.mark.parametrize("ties", ["index", "pessimistic"])
@pytest.mark.parametrize("ignoring", [None, "mask", "groups"])
def test_ranks_with_gain_triples_match_dense_gains(reference, depth, ties, ignoring, device):
    x, dense, triples = data(device)
    group = torch.arange(40, device=device) % 3
    ignore = {None: None, "mask": dense.T > 0.5, "groups": (group, group)}[ignoring]
    inputs = (x, group, x.flip(0).contiguous(), group) if reference else (x, group)
    options = {"depth": depth, "ties": ties, "ignore": ignore, "memory_budget": 2**14}
    expected = positive_ranks(*inputs, gains=dense, **options)
    got = positive_ranks(*inputs, gains=triples, **options)
    assert got.depth == expected.depth
    for part, expected_part in zip(got[:3], expected[:3], strict=True):
        if part.ndim == 1:
            assert torch.equal(part, expected_part)
    for score in (average_precision, ndcg, lambda ranks: ranks.rank.sort().values.double().sum(-1)):
        torch.testing.assert_close(score(got), score(expected), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("depth", [None, 3])
@pytest.mark.parametrize(("batch_shape", "masked"), [((), True), ((2, 3), False), ((2, 3), True)])
def test_ranks_with_batched_gain_triples_match_dense_gains(batch_shape, masked, depth, device):
    x, labels = torch.randn(*batch_shape, 9, 3, device=device), torch.zeros(*batch_shape, 9, device=device)
    dense = torch.randint(0, 4, (*batch_shape, 9, 9), device=device) * (
        torch.rand(*batch_shape, 9, 9, device=device) < 0.3
    )
    dense[..., 4, :] = 0
    index = dense.nonzero()[torch.randperm(int((dense > 0).sum()), device=device)].unbind(1)
    options = {"query_mask": torch.rand(*batch_shape, 9, device=device) < 0.7} if masked else {}
    expected = positive_ranks(x, labels, gains=dense, depth=depth, **options)
    got = positive_ranks(x, labels, gains=(*index, dense[index]), depth=depth, **options)
    assert expected.relevant.sum() > 0
    for part, expected_part in zip(got[1:3], expected[1:3], strict=True):
        assert torch.equal(part, expected_part)
    for score in (average_precision, ndcg, lambda ranks: ranks.rank.sort().values.double().sum(-1)):
        torch.testing.assert_close(score(got), score(expected), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("k", [None, 5, "max_bin_count"])
@pytest.mark.parametrize("custom_search", [False, True])
def test_calculator_with_gain_triples_matches_dense_gains(k, custom_search, device):
    x, dense, triples = data(device)
    labels = torch.arange(40, device=device) % 3
    options = {"k": k, "knn_func": (lambda *arguments: TorchKNN()(*arguments)) if custom_search else None}
    expected = AccuracyCalculator(NAMES, gains=dense, **options).get_accuracy(x, labels, query_cameras=labels)
    calculator = AccuracyCalculator(NAMES, gains=triples, **options)
    assert calculator.rows_may_stay() == (not custom_search)
    assert calculator.get_accuracy(x, labels, query_cameras=labels) == pytest.approx(expected, rel=1e-12)
    as_arrays = tuple(column.cpu().numpy() for column in triples)
    of_call = AccuracyCalculator(NAMES, **options)
    assert of_call.get_accuracy(x, labels, query_cameras=labels, gains=as_arrays) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("make", [lambda **o: NDCG((3, 10), **o), lambda **o: RecallAtK(4, **o), AveragePrecision])
@pytest.mark.parametrize("average", ["micro", "macro", "none"])
def test_metrics_with_gain_triples_match_dense_gains(make, average, device):
    x, dense, triples = data(device)
    labels = torch.arange(40, device=device) % 3
    values = []
    for gains in (dense, triples):
        metric = make(gains=gains, average=average).to(device)
        for rows in torch.arange(40, device=device).split(15):
            metric.update(x[rows], labels[rows])
        values.append(metric.compute())
    torch.testing.assert_close(*values, rtol=1e-12, atol=0, equal_nan=True)


def test_relevance_of_triples_needs_no_dense_table(device):
    num_items = 10**6  # a table would take 8 TB
    labels, none = torch.zeros(num_items, dtype=torch.int64, device=device), torch.full((num_items,), -1, device=device)
    query = torch.arange(num_items, device=device)
    relevance = Relevance(labels, labels, none, gains=(query, query.flip(0), torch.ones(num_items, device=device)))
    assert relevance.bytes_per_query <= 128
    positives = relevance(slice(num_items - 3, num_items))
    assert positives.index.tolist() == [[2], [1], [0]] and positives.gain.tolist() == [[1], [1], [1]]


def test_ranks_without_gain_triples_have_no_positives(device):
    x, _, _ = data(device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    ranks = positive_ranks(x, torch.zeros(40, device=device), gains=(none, none, none.double()))
    assert ranks.relevant.sum() == 0 and ndcg(ranks).isnan().all()


QUERY, REFERENCE, GAIN = torch.tensor([0, 1]), torch.tensor([1, 2]), torch.tensor([1.0, 2.0])


def test_gain_triples_of_wrong_shape_or_dtype_are_rejected():
    x, labels = torch.zeros(3, 2), torch.zeros(3)
    for triples in (
        (QUERY, REFERENCE[:1], GAIN),
        (QUERY, REFERENCE.double(), GAIN),
        (QUERY[None], REFERENCE[None], GAIN[None]),
    ):
        with pytest.raises(ValueError, match="^gains"):
            positive_ranks(x, labels, gains=triples)
    with pytest.raises(ValueError, match="^gains"):
        AccuracyCalculator(("ndcg",), gains=(np.zeros(2, dtype=int), np.zeros(2, dtype=int), np.ones(2))).get_accuracy(
            x, labels
        )
