"""Leading dimensions and masks: a batch gives the same results as its items without padding."""

import pytest
import torch
from ranks_oracle import families, nonzero_ranks

from tensormetrics.retrieval import TorchKNN, positive_ranks
from tensormetrics.retrieval.search.distance import DISTANCES


@pytest.fixture
def batch(device):
    """Return embeddings, labels and mask of 2 x 3 self-retrievals of up to nine rows; the padding is NaN."""
    mask = torch.rand(2, 3, 9) < 0.7
    mask[1, 2] = False
    x = torch.randn(2, 3, 9, 4).masked_fill(~mask[..., None], torch.nan)
    return [part.to(device) for part in (x, torch.randint(0, 3, (2, 3, 9)), mask)]


@pytest.mark.parametrize("distance", ["l2", "cosine", lambda a, b: (a[:, None] - b).abs().sum(2)])
def test_knn_batch_with_masks_equals_items_without_padding(distance, batch):
    x, _, mask = batch
    ignore = torch.rand(2, 3, 9, 9, device=x.device) < 0.2
    knn = TorchKNN(distance)
    distances, indices = knn(x, 4, x, True, ignore=ignore, query_mask=mask, reference_mask=mask)
    assert torch.equal(indices, knn.indices(x, 4, x, True, ignore=ignore, query_mask=mask, reference_mask=mask))
    assert (indices[~mask] == -1).all() and (distances[~mask] == torch.inf).all()
    for i in range(2):
        for j in range(3):
            valid = mask[i, j].nonzero()[:, 0]
            rows = x[i, j, valid]
            expected_distances, expected_indices = knn(rows, 4, rows, True, ignore=ignore[i, j][valid][:, valid])
            expected_indices = torch.where(
                expected_indices < 0,
                -1,
                valid[expected_indices.clamp(min=0)] if len(valid) else expected_indices,
            )
            assert torch.equal(indices[i, j, valid], expected_indices) and torch.equal(
                distances[i, j, valid], expected_distances
            )


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("budget", [None, 200_000])
def test_batch_of_difficult_families_equals_separate_items(distance, budget, device):
    items = [torch.tensor(rows, dtype=torch.float32) for rows in families(30, 5).values() if rows.shape[1] == 5]
    x, knn = torch.stack(items).to(device), TorchKNN(distance, memory_budget=budget)
    labels = torch.randint(0, 4, x.shape[:2], device=device)
    options = {"distance": distance, "memory_budget": budget}
    ranks = positive_ranks(x, labels, **options).rank
    for k in (1, 10, 40):
        distances, indices = knn(x, k, x, True)
        for i, rows in enumerate(x):
            expected_distances, expected_indices = knn(rows, k, rows, True)
            assert torch.equal(indices[i], expected_indices) and torch.equal(distances[i], expected_distances)
    for i, rows in enumerate(x):
        assert nonzero_ranks(ranks[i]) == nonzero_ranks(positive_ranks(rows, labels[i], **options).rank)


def test_knn_trained_references_are_searched_for_batched_queries(device):
    x = torch.randn(20, 3, device=device)
    query, knn = x[:12].view(3, 4, 3), TorchKNN()
    knn.train(x)
    self_index = torch.arange(12, device=device).view(3, 4)
    distances, indices = knn(query, 5, self_index=self_index)
    expected = knn(x[:12], 5, ref_includes_query=True)
    assert torch.equal(distances.flatten(0, 1), expected[0]) and torch.equal(indices.flatten(0, 1), expected[1])
    assert knn(query[:0], 5)[1].shape == (0, 4, 5)


@pytest.mark.parametrize("option", ["nothing", "ignore", "groups", "gains"])
@pytest.mark.parametrize("depth", [None, 3])
def test_positive_ranks_batch_with_masks_equals_items_without_padding(depth, option, batch):
    x, labels, mask = batch
    pairs, groups = torch.rand(2, 3, 9, 9, device=x.device), torch.randint(0, 2, (2, 3, 9), device=x.device)
    options = (
        {"ignore": pairs < 0.3} if option == "ignore" else {"ignore": (groups, groups)} if option == "groups" else {}
    )
    options |= {"gains": (3 * pairs).floor()} if option == "gains" else {}
    ranks = positive_ranks(x, labels, query_mask=mask, depth=depth, **options)
    assert ranks.rank.shape[:-1] == (2, 3, 9) and ranks.rank.shape[-1] == ranks.relevant.max()
    assert (ranks.relevant[~mask] == 0).all() and (ranks.candidates[~mask] == 0).all()
    for i in range(2):
        for j in range(3):
            valid = mask[i, j].nonzero()[:, 0]

            def select_item(value):
                if isinstance(value, tuple):
                    return tuple(tensor[i, j, valid] for tensor in value)  # noqa: B023
                return value[i, j][valid][:, valid]  # noqa: B023

            item_options = {name: select_item(value) for name, value in options.items()}
            expected = positive_ranks(x[i, j, valid], labels[i, j, valid], depth=depth, **item_options)
            assert nonzero_ranks(ranks.rank[i, j, valid]) == nonzero_ranks(expected.rank)
            for field in ("relevant", "candidates"):
                assert torch.equal(getattr(ranks, field)[i, j, valid], getattr(expected, field))
            if option == "gains":
                width = expected.gain.shape[1]
                assert torch.equal(ranks.gain[i, j, valid, :width], expected.gain)
                assert torch.equal(ranks.ideal[i, j, valid, :width], expected.ideal)


def test_positive_ranks_batch_with_two_label_columns_equals_separate_items(device):
    query, reference = torch.randn(3, 5, 2, device=device), torch.randn(3, 8, 2, device=device)
    labels, reference_labels = (torch.randint(0, 2, (3, n, 2), device=device) for n in (5, 8))
    self_index = torch.arange(5, device=device).expand(3, 5)
    options = {"label_comparison_fn": lambda a, b: (a == b).all(1)}
    ranks = positive_ranks(query, labels, reference, reference_labels, self_index=self_index, **options)
    for i in range(3):
        expected = positive_ranks(
            query[i], labels[i], reference[i], reference_labels[i], self_index=self_index[i], **options
        )
        assert nonzero_ranks(ranks.rank[i]) == nonzero_ranks(expected.rank)
