"""Leading dimensions and masks give what each item gives alone without its padding."""

import pytest
import torch
from ranks_oracle import families

from tensormetrics.retrieval import TorchKNN, positive_ranks
from tensormetrics.retrieval.search.distance import DISTANCES


def found(rank):
    return [row[row > 0].tolist() for row in rank]


@pytest.fixture
def batch(device):
    """Two by three self-retrievals of up to nine rows; the padding is NaN."""
    mask = torch.rand(2, 3, 9) < 0.7
    mask[1, 2] = False
    x = torch.randn(2, 3, 9, 4).masked_fill(~mask[..., None], torch.nan)
    return [part.to(device) for part in (x, torch.randint(0, 3, (2, 3, 9)), mask)]


@pytest.mark.parametrize("distance", ["l2", "cosine", lambda a, b: (a[:, None] - b).abs().sum(2)])
def test_neighbours_among_rows_that_are_present(distance, batch):
    x, _, mask = batch
    hidden = torch.rand(2, 3, 9, 9, device=x.device) < 0.2
    knn = TorchKNN(distance)
    distances, indices = knn(x, 4, x, True, ignore=hidden, query_mask=mask, reference_mask=mask)
    assert torch.equal(indices, knn.indices(x, 4, x, True, ignore=hidden, query_mask=mask, reference_mask=mask))
    assert (indices[~mask] == -1).all() and (distances[~mask] == torch.inf).all()
    for i in range(2):
        for j in range(3):
            here = mask[i, j].nonzero()[:, 0]
            rows = x[i, j, here]
            near, expected = knn(rows, 4, rows, True, ignore=hidden[i, j][here][:, here])
            expected = torch.where(expected < 0, -1, here[expected.clamp(min=0)] if len(here) else expected)
            assert torch.equal(indices[i, j, here], expected) and torch.equal(distances[i, j, here], near)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("budget", [None, 200_000])
def test_hard_items_are_found_together(distance, budget, device):
    items = [torch.tensor(rows, dtype=torch.float32) for rows in families(30, 5).values() if rows.shape[1] == 5]
    x, knn = torch.stack(items).to(device), TorchKNN(distance, memory_budget=budget)
    labels = torch.randint(0, 4, x.shape[:2], device=device)
    options = {"distance": distance, "memory_budget": budget}
    ranks = positive_ranks(x, labels, **options).rank
    for k in (1, 10, 40):
        distances, indices = knn(x, k, x, True)
        for i, rows in enumerate(x):
            near, expected = knn(rows, k, rows, True)
            assert torch.equal(indices[i], expected) and torch.equal(distances[i], near)
    for i, rows in enumerate(x):
        assert found(ranks[i]) == found(positive_ranks(rows, labels[i], **options).rank)


def test_kept_references_serve_every_item(device):
    x = torch.randn(20, 3, device=device)
    query, knn = x[:12].view(3, 4, 3), TorchKNN()
    knn.train(x)
    own = torch.arange(12, device=device).view(3, 4)
    distances, indices = knn(query, 5, self_index=own)
    expected = knn(x[:12], 5, ref_includes_query=True)
    assert torch.equal(distances.flatten(0, 1), expected[0]) and torch.equal(indices.flatten(0, 1), expected[1])
    assert knn(query[:0], 5)[1].shape == (0, 4, 5)


@pytest.mark.parametrize("form", ["nothing", "ignore", "groups", "gains"])
@pytest.mark.parametrize("depth", [None, 3])
def test_ranks_among_rows_that_are_present(depth, form, batch):
    x, labels, mask = batch
    pairs, groups = torch.rand(2, 3, 9, 9, device=x.device), torch.randint(0, 2, (2, 3, 9), device=x.device)
    options = {"ignore": pairs < 0.3} if form == "ignore" else {"ignore": (groups, groups)} if form == "groups" else {}
    options |= {"gains": (3 * pairs).floor()} if form == "gains" else {}
    ranks = positive_ranks(x, labels, query_mask=mask, depth=depth, **options)
    assert ranks.rank.shape[:-1] == (2, 3, 9) and ranks.rank.shape[-1] == ranks.relevant.max()
    assert (ranks.relevant[~mask] == 0).all() and (ranks.candidates[~mask] == 0).all()
    for i in range(2):
        for j in range(3):
            here = mask[i, j].nonzero()[:, 0]

            def present(value):
                if isinstance(value, tuple):
                    return tuple(side[i, j, here] for side in value)  # noqa: B023
                return value[i, j][here][:, here]  # noqa: B023

            one = {name: present(value) for name, value in options.items()}
            alone = positive_ranks(x[i, j, here], labels[i, j, here], depth=depth, **one)
            assert found(ranks.rank[i, j, here]) == found(alone.rank)
            for field in ("relevant", "candidates"):
                assert torch.equal(getattr(ranks, field)[i, j, here], getattr(alone, field))
            if form == "gains":
                width = alone.gain.shape[1]
                assert torch.equal(ranks.gain[i, j, here, :width], alone.gain)
                assert torch.equal(ranks.ideal[i, j, here, :width], alone.ideal)


def test_other_references_and_labels_of_two_columns(device):
    query, reference = torch.randn(3, 5, 2, device=device), torch.randn(3, 8, 2, device=device)
    labels, others = (torch.randint(0, 2, (3, n, 2), device=device) for n in (5, 8))
    own = torch.arange(5, device=device).expand(3, 5)
    options = {"label_comparison_fn": lambda a, b: (a == b).all(1)}
    ranks = positive_ranks(query, labels, reference, others, self_index=own, **options)
    for i in range(3):
        alone = positive_ranks(query[i], labels[i], reference[i], others[i], self_index=own[i], **options)
        assert found(ranks.rank[i]) == found(alone.rank)


def test_bad_arguments(device):
    x, labels, mask = torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), torch.ones(2, 3, dtype=torch.bool)
    x, labels, mask = (part.to(device) for part in (x, labels, mask))
    for call, message in (
        (
            lambda: TorchKNN()(x, 1, x[0]),
            "query and reference: got shapes (2, 3, 4) and (3, 4), wanted the same leading dimensions and columns",
        ),
        (
            lambda: TorchKNN()(x, 1, x[..., :2]),
            "query and reference: got shapes (2, 3, 4) and (2, 3, 2), wanted the same leading dimensions and columns",
        ),
        (lambda: TorchKNN()(x, 0, x), "k: got 0, wanted an integer >= 1"),
        (lambda: TorchKNN()(x, 1, x, query_mask=mask[0]), "query_mask: got shape (3,), wanted (2, 3)"),
        (
            lambda: TorchKNN()(x, 1, x, reference_mask=labels),
            "reference_mask: got torch.int64, wanted torch.bool; write reference_mask.bool()",
        ),
        (
            lambda: TorchKNN()(x, 1, x[:, :2], True),
            "ref_includes_query: got 3 queries and 2 references, wanted references that begin with the queries",
        ),
        (
            lambda: TorchKNN()(x, 1, x, ignore=lambda rows: None),
            "ignore: got a function with leading dimensions or masks, wanted a mask (..., Q, R)",
        ),
        (
            lambda: positive_ranks(x, labels, ignore=lambda rows: None),
            "ignore: got a function with leading dimensions or masks, wanted a mask (..., Q, N)",
        ),
        (
            lambda: positive_ranks(x, labels, reference_mask=mask),
            "reference_mask: got one without reference, wanted query_mask",
        ),
        (lambda: positive_ranks(x, labels[:, :2]), "query_labels: got shape (2, 2), wanted (2, 3)"),
        (
            lambda: positive_ranks(x, labels, x),
            "reference_labels: got None, wanted both reference and reference_labels or neither",
        ),
        (lambda: positive_ranks(x[0, 0], labels[0], query_mask=mask), "query: got shape (4,), wanted (..., N, D)"),
    ):
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value) == message


@pytest.mark.parametrize("option", ["distance", "ties"])
def test_unknown_names_are_told_for_small_items_too(option):
    with pytest.raises(ValueError, match=f"^{option}: got 'bogus', wanted one of '"):
        positive_ranks(torch.randn(3, 10, 2), torch.arange(10).expand(3, -1) % 2, **{option: "bogus"})
