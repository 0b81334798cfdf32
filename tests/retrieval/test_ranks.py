import pytest
import torch
from retrieval_oracle import CASES, TINY, TINY_LABELS, case_rows, cases

from tensormetrics.retrieval import (
    PositiveRanks,
    TorchKNN,
    average_precision_at_r,
    count_relevant,
    precision,
    r_precision,
    ranks_of_neighbours,
)


def found(rank):
    return [row[row > 0].tolist() for row in rank]


def self_ranks(embeddings, labels, device):
    x, labels = torch.tensor(embeddings, device=device), torch.tensor(labels, device=device)
    indices = TorchKNN().indices(x, len(x), x, True)
    return ranks_of_neighbours(indices, labels, labels, count_relevant(labels, labels, True))


def test_golden_ranks(device):
    case = CASES["ranks/tiny_self"]
    ranks = self_ranks(TINY, TINY_LABELS, device)
    assert found(ranks.rank) == case["ranks"] and ranks.relevant.tolist() == case["relevant"]
    assert ranks.rank.dtype == ranks.relevant.dtype == torch.int64


@pytest.mark.parametrize("name", [name for name, case in cases("get_accuracy").items() if "ranks" in case])
def test_golden_ranks_of_accuracy_cases(name, device):
    case = CASES[name]
    x, labels = (torch.tensor(side, device=device) for side in case_rows(case))
    if case["self"]:
        reference, reference_labels = x, labels
    else:
        reference = torch.tensor(case["reference"], dtype=x.dtype, device=device)
        reference_labels = torch.tensor(case["reference_labels"], device=device)
    indices = TorchKNN().indices(x, len(reference), reference, case["self"])
    relevant = count_relevant(labels, reference_labels, case["self"])
    assert found(ranks_of_neighbours(indices, labels, reference_labels, relevant).rank) == case["ranks"]
    assert relevant.tolist() == [len(row) for row in case["ranks"]]


def test_leading_dimensions(device):
    labels = torch.randint(0, 3, (2, 4, 9), device=device)
    indices = torch.randint(-1, 9, (2, 4, 9, 5), device=device)
    relevant = count_relevant(labels, labels, True)
    ranks = ranks_of_neighbours(indices, labels, labels, relevant)
    for i in range(2):
        for j in range(4):
            assert relevant[i, j].tolist() == [(labels[i, j] == label).sum() - 1 for label in labels[i, j]]
            for q in range(9):
                for rank, index in enumerate(indices[i, j, q].tolist(), 1):
                    match = index >= 0 and labels[i, j, index] == labels[i, j, q]
                    assert ranks.rank[i, j, q, rank - 1] == (rank if match else 0)


def test_scores_by_hand(device):
    # Four relevant, found at ranks 1, 3 and 6; two relevant, none found; none relevant.
    rank = torch.tensor([[1, 0, 3, 0, 0, 6], [0] * 6, [0] * 6], device=device)
    ranks = PositiveRanks(rank, torch.tensor([4, 2, 0], device=device))
    nan = torch.nan
    for score, expected in (
        (precision(ranks, 1), [1, 0, nan]),
        (precision(ranks, 5), [2 / 5, 0, nan]),
        (precision(ranks, 10), [3 / 10, 0, nan]),
        (r_precision(ranks), [2 / 4, 0, nan]),
        (average_precision_at_r(ranks), [(1 / 1 + 2 / 3) / 4, 0, nan]),
    ):
        torch.testing.assert_close(
            score, torch.tensor(expected, dtype=torch.float64, device=device), rtol=1e-15, atol=0, equal_nan=True
        )


def test_padding_may_stand_anywhere(device):
    dense = PositiveRanks(torch.tensor([[1, 2, 4]], device=device), torch.tensor([4], device=device))
    padded = dense._replace(rank=torch.tensor([[0, 1, 0, 0, 2, 4, 0]], device=device))
    for score in (r_precision, average_precision_at_r, lambda ranks: precision(ranks, 3)):
        assert torch.equal(score(dense), score(padded))


def test_precision_needs_a_positive_k(device):
    ranks = PositiveRanks(torch.ones(1, 1, device=device).long(), torch.ones(1, device=device).long())
    with pytest.raises(ValueError, match=r"^k: got 0, wanted an integer >= 1$"):
        precision(ranks, 0)
