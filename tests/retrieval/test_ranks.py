import numpy as np
import pytest
import torch
from ranks_oracle import nonzero_ranks
from ranks_oracle import ranks as oracle
from retrieval_oracle import CASES, TINY, TINY_LABELS, case_rows, cases

from tensormetrics.retrieval import (
    TorchKNN,
    count_relevant,
    positive_ranks,
    ranks_of_neighbors,
)
from tensormetrics.retrieval.ranking.positive_ranks import RankingInputs, rank_tiles
from tensormetrics.retrieval.ranking.ranking import Ranking


def check(ranks, expected, relevant):
    """Compare ranks with the lists of the oracle; `relevant` also counts positives below the depth."""
    rank, gain, candidates = expected
    assert nonzero_ranks(ranks.rank) == rank and ranks.rank.dtype == torch.int32
    assert ranks.relevant.tolist() == list(relevant) and ranks.candidates.tolist() == candidates
    assert ranks.rank.shape[1] == max(relevant, default=0)
    if ranks.gain is not None:
        assert [row[:n].tolist() for row, n in zip(ranks.gain, map(len, rank), strict=True)] == gain
        assert ranks.gain.shape == ranks.ideal.shape == ranks.rank.shape


def self_ranks(embeddings, labels, device):
    x, labels = torch.tensor(embeddings, device=device), torch.tensor(labels, device=device)
    indices = TorchKNN().indices(x, len(x), x, True)
    return ranks_of_neighbors(indices, labels, labels, count_relevant(labels, labels, True))


def test_golden_ranks_of_tiny_case_match(device):
    case = CASES["ranks/tiny_self"]
    ranks = self_ranks(TINY, TINY_LABELS, device)
    assert nonzero_ranks(ranks.rank) == case["ranks"] and ranks.relevant.tolist() == case["relevant"]
    assert ranks.rank.dtype == ranks.relevant.dtype == torch.int64


@pytest.mark.parametrize("name", [name for name, case in cases("get_accuracy").items() if "ranks" in case])
def test_golden_ranks_of_accuracy_cases_match(name, device):
    case = CASES[name]
    x, labels = (torch.tensor(column, device=device) for column in case_rows(case))
    if case["self"]:
        reference, reference_labels = x, labels
    else:
        reference = torch.tensor(case["reference"], dtype=x.dtype, device=device)
        reference_labels = torch.tensor(case["reference_labels"], device=device)
    indices = TorchKNN().indices(x, len(reference), reference, case["self"])
    relevant = count_relevant(labels, reference_labels, case["self"])
    assert nonzero_ranks(ranks_of_neighbors(indices, labels, reference_labels, relevant).rank) == case["ranks"]
    assert relevant.tolist() == [len(row) for row in case["ranks"]]


def test_ranks_of_neighbors_leading_dimensions_match_loop(device):
    labels = torch.randint(0, 3, (2, 4, 9), device=device)
    indices = torch.randint(-1, 9, (2, 4, 9, 5), device=device)
    relevant = count_relevant(labels, labels, True)
    ranks = ranks_of_neighbors(indices, labels, labels, relevant)
    for i in range(2):
        for j in range(4):
            assert relevant[i, j].tolist() == [(labels[i, j] == label).sum() - 1 for label in labels[i, j]]
            for q in range(9):
                for rank, index in enumerate(indices[i, j, q].tolist(), 1):
                    match = index >= 0 and labels[i, j, index] == labels[i, j, q]
                    assert ranks.rank[i, j, q, rank - 1] == (rank if match else 0)


def labeled_points(device, n=40, others=55):
    random = np.random.RandomState(3)
    points = [torch.tensor(random.randint(-2, 3, (m, 3)), dtype=torch.float32, device=device) for m in (n, others)]
    labels = [torch.tensor(random.randint(0, 7, m), device=device) for m in (n, others)]
    return points[0], labels[0], points[1], labels[1]


def test_positive_ranks_of_self_and_other_references_match_oracle(device):
    x, labels, reference, reference_labels = labeled_points(device)
    match, eye = (labels[:, None] == labels).cpu().numpy(), np.eye(len(x), dtype=bool)
    for depth in (None, 1, 5, 39):
        expected = oracle(x.cpu(), x.cpu(), match & ~eye, eye, depth=depth)
        check(positive_ranks(x, labels, depth=depth), expected, (match.sum(1) - 1).tolist())
    match = (labels[:, None] == reference_labels).cpu().numpy()
    self_index = np.random.RandomState(1).randint(-1, len(reference), len(x))
    ignored = self_index[:, None] == np.arange(len(reference))
    for distance in ("l2", "sqeuclidean", "ip", "cosine"):
        expected = oracle(x.cpu(), reference.cpu(), match & ~ignored, ignored, distance)
        ranks = positive_ranks(
            x,
            labels,
            reference,
            reference_labels,
            self_index=torch.tensor(self_index, device=device),
            distance=distance,
        )
        check(ranks, expected, (match & ~ignored).sum(1).tolist())


@pytest.mark.parametrize("kind", ["mask", "function", "groups"])
def test_positive_ranks_with_ignored_references_match_oracle(kind, device):
    x, labels, reference, reference_labels = labeled_points(device)
    match = (labels[:, None] == reference_labels).cpu().numpy()
    random = np.random.RandomState(2)
    if kind == "groups":
        groups = [torch.tensor(random.randint(0, 3, len(points)), device=device) for points in (x, reference)]
        ignore, ignored = tuple(groups), match & (groups[0][:, None] == groups[1]).cpu().numpy()
    else:
        ignored = random.rand(*match.shape) < 0.3
        mask = torch.tensor(ignored, device=device)
        ignore = mask if kind == "mask" else lambda rows: mask[rows]
    for depth in (None, 4):
        expected = oracle(x.cpu(), reference.cpu(), match & ~ignored, ignored, depth=depth)
        ranks = positive_ranks(x, labels, reference, reference_labels, ignore=ignore, depth=depth, memory_budget=50_000)
        check(ranks, expected, (match & ~ignored).sum(1).tolist())


def test_positive_ranks_with_label_comparison_match_oracle(device):
    x, labels, reference, reference_labels = labeled_points(device)
    match = (labels[:, None] - reference_labels).abs().cpu().numpy() == 1
    expected = oracle(x.cpu(), reference.cpu(), match, np.zeros_like(match))
    close = positive_ranks(x, labels, reference, reference_labels, label_comparison_fn=lambda a, b: (a - b).abs() == 1)
    check(close, expected, match.sum(1).tolist())
    # two label columns; the comparison reads only the first
    two, other_two = (torch.stack([column, column * 0 + 7], 1) for column in (labels, reference_labels))
    columns = positive_ranks(x, two, reference, other_two, label_comparison_fn=lambda a, b: (a - b)[:, 0].abs() == 1)
    assert torch.equal(columns.rank, close.rank)
    # a label that does not match itself
    never = positive_ranks(x, labels, label_comparison_fn=lambda a, b: a != b)
    assert never.relevant.tolist() == [(labels != label).sum() for label in labels]


def test_positive_ranks_with_gains_match_oracle(device):
    x, labels, reference, reference_labels = labeled_points(device)
    gains = (labels[:, None] * reference_labels % 5).double()
    ignored = np.zeros(gains.shape, dtype=bool)
    expected = oracle(x.cpu(), reference.cpu(), gains.cpu(), ignored)
    sorted_gains = [sorted(row[row > 0].tolist(), reverse=True) for row in gains]
    for gains_input in (gains, gains.float(), lambda a, b: a * b % 5):
        ranks = positive_ranks(x, labels, reference, reference_labels, gains=gains_input)
        check(ranks, expected, (gains > 0).sum(1).tolist())
        assert [row[row > 0].tolist() for row in ranks.ideal] == sorted_gains
    for depth in (3, 50):
        expected = oracle(x.cpu(), reference.cpu(), gains.cpu(), ignored, depth=depth)
        ranks = positive_ranks(x, labels, reference, reference_labels, gains=gains, depth=depth)
        check(ranks, expected, (gains > 0).sum(1).tolist())
        assert [row[row > 0].tolist() for row in ranks.ideal] == sorted_gains


def test_rank_tiles_concatenate_to_full_ranks(device):
    x, labels, *_ = labeled_points(device)
    full = positive_ranks(x, labels)
    end = 0
    for rows, ranks in rank_tiles(RankingInputs(x, labels).checked(), Ranking(memory_budget=20_000)):
        assert rows.start == end and ranks.rank.shape == (rows.stop - rows.start, ranks.relevant.max())
        assert nonzero_ranks(ranks.rank) == nonzero_ranks(full.rank[rows])
        assert torch.equal(ranks.candidates, full.candidates[rows])
        end = rows.stop
    assert end == len(x)


def test_rank_tiles_ignore_requires_grad(device):
    x, labels, *_ = labeled_points(device)
    for depth in (None, 5):
        ranks = positive_ranks(x, labels, depth=depth)
        for _, tile in rank_tiles(RankingInputs(x.clone().requires_grad_(), labels).checked(), Ranking(depth=depth)):
            assert torch.equal(tile.rank, ranks.rank)
        assert torch.is_grad_enabled()


def test_positive_ranks_of_empty_inputs_have_empty_shapes(device):
    x, labels = torch.zeros(3, 2, device=device), torch.arange(3, device=device)
    for ranks, shape in (
        (positive_ranks(x, labels), (3, 0)),
        (positive_ranks(x[:0], labels[:0], x, labels), (0, 0)),
        (positive_ranks(x, labels, x[:0], labels[:0]), (3, 0)),
        (positive_ranks(x[:1], labels[:1]), (1, 0)),
    ):
        assert ranks.rank.shape == shape and ranks.relevant.tolist() == [0] * shape[0]
