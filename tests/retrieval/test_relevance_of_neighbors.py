"""Ignored references and gains, as tables or triples, with a custom search: scores match those of counted ranks."""

import numpy as np
import pytest
import torch

from tensormetrics.retrieval import AccuracyCalculator, FaissKNN, TorchKNN, open_embeddings
from tensormetrics.retrieval.functional import average_precision, cmc, hit_rate, ndcg, positive_ranks
from tensormetrics.retrieval.relevance import Relevance

NAMES = ("hit_rate_at_1", "mean_average_precision", "mean_average_precision_at_r", "ndcg_at_5", "precision_at_3",
         "recall_at_4", "mean_auroc")  # fmt: skip
OTHERS = torch.rand(50, 50, generator=torch.Generator().manual_seed(1)) < 0.4


def data():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (50,), generator=generator)
    rows = torch.randn(50, 3, generator=generator) + labels[:, None]
    return rows, labels, torch.randint(0, 3, (50,), generator=generator)


def graded(a, b):
    return (3 - (a - b).abs()).clamp(min=0)


def searches():
    yield lambda *arguments: TorchKNN()(*arguments)
    pytest.importorskip("faiss")
    yield FaissKNN()


@pytest.mark.parametrize("k", [None, 5, "max_bin_count"])
@pytest.mark.parametrize(
    ("options", "cameras"),
    [
        ({}, True),
        ({"ignore": OTHERS}, False),
        ({"ignore": lambda rows: OTHERS[rows]}, False),
        ({"gains": graded}, False),
        ({"gains": graded}, True),
        ({"gains": OTHERS.double(), "ignore": ~OTHERS.T}, False),
        ({"label_comparison_fn": lambda a, b: (a - b).abs() < 2}, True),
    ],
)
def test_custom_search_scores_match_default_search(options, cameras, k):
    x, labels, camera_ids = data()
    for inputs in ((x, labels), (x, labels, x + 0.01, labels)):
        call_options = {"query_cameras": camera_ids} if cameras else {}
        if cameras and len(inputs) == 4:
            call_options["reference_cameras"] = camera_ids
        expected = AccuracyCalculator(NAMES, k=k, memory_budget=2**12, **options).get_accuracy(*inputs, **call_options)
        for knn in searches():
            calculator = AccuracyCalculator(NAMES, k=k, knn_func=knn, memory_budget=2**12, **options)
            assert calculator.get_accuracy(*inputs, **call_options) == pytest.approx(expected, rel=1e-12)


def test_custom_search_is_queried_for_k_plus_ignored():
    x, labels, cameras = data()
    requested_k = []

    def knn(query, k, *rest):
        requested_k.append(k)
        return TorchKNN()(query, k, *rest)

    AccuracyCalculator(("precision_at_3",), knn_func=knn).get_accuracy(x, labels, query_cameras=cameras)
    same = (labels[:, None] == labels) & (cameras[:, None] == cameras)
    assert requested_k == [3 + int(same.sum(1).max()) - 1]


def test_cmc_equals_hit_rate_at_all_depths():
    x, labels, _ = data()
    labels = torch.cat([labels[:-1], torch.tensor([9])])  # the only item of its class
    ranks = positive_ranks(x, labels)
    curve = cmc(ranks, 6)
    expected = torch.stack([hit_rate(ranks, k) for k in range(1, 7)], -1)
    torch.testing.assert_close(curve, expected, rtol=0, atol=0, equal_nan=True)
    assert curve.shape == (50, 6) and curve[-1].isnan().all()
    with pytest.raises(ValueError, match="^k: got 0, wanted an integer >= 1$"):
        cmc(ranks, 0)


@pytest.mark.parametrize("memory_budget", [None, 2**12])
@pytest.mark.parametrize(
    ("options", "cameras"),
    [({}, False), ({}, True), ({"ignore": OTHERS}, False), ({"gains": graded}, True), ({"distance": "ip"}, False)],
)
def test_stored_neighbors_match_sorted_distances(options, cameras, memory_budget):
    x, labels, camera_ids = data()
    call_options = {"query_cameras": camera_ids} if cameras else {}
    options = {"k": 45, "keep": "neighbors", "memory_budget": memory_budget, **options}
    calculator = AccuracyCalculator(("precision_at_1",), **options)
    assert not calculator.rows_may_stay()  # all rows are gathered on all ranks
    calculator.get_accuracy(x, labels, **call_options)
    neighbors = calculator.last.neighbors
    assert neighbors.indices.shape == neighbors.distances.shape == neighbors.relevance.shape == (50, 45)
    inner = options.get("distance") == "ip"
    values = x.double() @ x.double().T if inner else torch.cdist(x.double(), x.double())
    relevance = graded(labels[:, None], labels).double() if "gains" in options else labels[:, None] == labels
    for i in range(50):
        candidates = torch.arange(50) != i
        if cameras:
            candidates &= ~((relevance[i] > 0) & (camera_ids == camera_ids[i]))
        if "ignore" in options:
            candidates &= ~OTHERS[i]
        order = sorted(candidates.nonzero()[:, 0].tolist(), key=lambda j: -values[i, j] if inner else values[i, j])[:45]  # noqa: B023
        none = [-1] * (45 - len(order))
        assert neighbors.indices[i].tolist() == order + none
        assert neighbors.distances[i, : len(order)].tolist() == pytest.approx(
            values[i, order].tolist(), rel=1e-5, abs=1e-6
        )
        assert neighbors.distances[i, len(order) :].isnan().all()
        assert neighbors.relevance[i].tolist() == relevance[i, order].tolist() + [0] * len(none)
    first = (neighbors.relevance[:, 0] > 0).double()
    scores = calculator.last.scores["precision_at_1"]
    assert torch.equal(first[~scores.isnan()], scores[~scores.isnan()])


def test_stored_neighbors_of_custom_search_and_levels_match():
    x, labels, _ = data()
    names, options = ("precision_at_3",), {"keep": "neighbors", "k": 4}
    default = AccuracyCalculator(names, **options)
    default.get_accuracy(x, labels, x + 0.01, labels)
    for knn in searches():
        other = AccuracyCalculator(names, knn_func=knn, **options)
        other.get_accuracy(x, labels, x + 0.01, labels)
        assert torch.equal(other.last.neighbors.indices, default.last.neighbors.indices)
        assert torch.equal(other.last.neighbors.relevance, default.last.neighbors.relevance)
    of_levels = AccuracyCalculator(names, label_levels=True, **options)
    of_levels.update(x, torch.stack([labels, labels % 2], 1))
    of_levels.compute()
    for level, level_labels in zip(of_levels.last.neighbors, (labels, labels % 2), strict=True):
        assert torch.equal(level.relevance, level_labels[level.indices] == level_labels[:, None])
    assert AccuracyCalculator(names).last is None
    without_neighbors = AccuracyCalculator(names, k=4)
    without_neighbors.get_accuracy(x, labels)
    assert without_neighbors.last.neighbors is None


def test_stored_neighbors_without_positives_are_empty():
    calculator = AccuracyCalculator(("precision_at_1",), k="max_bin_count", keep="neighbors")
    x = torch.zeros(3, 2)
    for inputs in ((x, torch.arange(3)), (x[:0], torch.arange(0)), (x, torch.arange(3), x[:0], torch.arange(0))):
        calculator.get_accuracy(*inputs)
        assert {part.shape for part in calculator.last.neighbors} == {(len(inputs[0]), 0)}


def test_stored_neighbors_with_unsupported_options_are_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"^k: got None with keep='neighbors', wanted how many to keep, "):
        AccuracyCalculator(keep="neighbors")
    with pytest.raises(ValueError, match=r"^ties: got 'optimistic' with keep='neighbors', wanted 'index', "):
        AccuracyCalculator(keep="neighbors", k=3, ties="optimistic")
    x, labels, _ = data()
    np.save(tmp_path / "x.npy", x.numpy())
    calculator = AccuracyCalculator(("precision_at_1",), keep="neighbors", k=3)
    with pytest.raises(
        ValueError, match=r"^keep: got 'neighbors' with references in blocks, wanted 'scores' or 'all'$"
    ):
        calculator.get_accuracy(x, labels, open_embeddings(tmp_path / "x.npy"), labels)


GRADED = ("mean_average_precision", "mean_average_precision_at_r", "mean_auroc", "ndcg", "ndcg_at_5", "recall_at_4")


def data_of_triples(device):
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
    x, dense, triples = data_of_triples(device)
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
    x, dense, triples = data_of_triples(device)
    labels = torch.arange(40, device=device) % 3
    options = {"k": k, "knn_func": (lambda *arguments: TorchKNN()(*arguments)) if custom_search else None}
    expected = AccuracyCalculator(GRADED, gains=dense, **options).get_accuracy(x, labels, query_cameras=labels)
    calculator = AccuracyCalculator(GRADED, gains=triples, **options)
    assert calculator.rows_may_stay() == (not custom_search)
    assert calculator.get_accuracy(x, labels, query_cameras=labels) == pytest.approx(expected, rel=1e-12)
    as_arrays = tuple(column.cpu().numpy() for column in triples)
    of_call = AccuracyCalculator(GRADED, **options)
    assert of_call.get_accuracy(x, labels, query_cameras=labels, gains=as_arrays) == pytest.approx(expected, rel=1e-12)


def test_relevance_of_triples_needs_no_dense_table(device):
    num_items = 10**6  # a table would take 8 TB
    labels, none = torch.zeros(num_items, dtype=torch.int64, device=device), torch.full((num_items,), -1, device=device)
    query = torch.arange(num_items, device=device)
    relevance = Relevance(labels, labels, none, gains=(query, query.flip(0), torch.ones(num_items, device=device)))
    assert relevance.bytes_per_query <= 128
    positives = relevance(slice(num_items - 3, num_items))
    assert positives.index.tolist() == [[2], [1], [0]] and positives.gain.tolist() == [[1], [1], [1]]


def test_ranks_without_gain_triples_have_no_positives(device):
    x, _, _ = data_of_triples(device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    ranks = positive_ranks(x, torch.zeros(40, device=device), gains=(none, none, none.double()))
    assert ranks.relevant.sum() == 0 and ndcg(ranks).isnan().all()
