"""Overlaps of graphs against enumeration and golden values, and errors."""

import json
import random
from pathlib import Path

import pytest
import torch
from raising import raises
from torch import Tensor

from tensormetrics.structured.functional import graph_overlap, reachability
from tensormetrics.structured.tensors import _lengths

GOLDEN = json.loads((Path(__file__).parent / "latent_golden.json").read_text())
CONSTRAINTS = ("<->", "->", "<-", "~")
SOLVERS = ({}, {"solver": "exact"}, {"solver": "search"}, {"node_limit": 0})


def adjacency(nodes: int, edges: list[list[int]]) -> Tensor:
    matrix = torch.zeros(nodes, nodes, dtype=torch.bool)
    for u, v in edges:
        matrix[u, v] = True
    return matrix


def random_documents(count: int, nodes: int, full: bool) -> tuple[Tensor, ...]:
    """Similarities and reachabilities of graphs, half of them without cycles, with lengths."""
    generator = torch.Generator().manual_seed(nodes)
    similarity = torch.rand(count, nodes, nodes, generator=generator, dtype=torch.float64)
    similarity = (similarity < 0.4).double() if full else similarity - 0.3
    reachable = []
    for _ in range(2):
        edges = torch.rand(count, nodes, nodes, generator=generator) < 0.3 * torch.rand(
            count, 1, 1, generator=generator
        )
        edges[::2] = edges[::2].triu()
        reachable.append(reachability(edges))
    return (
        similarity,
        *reachable,
        *(torch.randint(nodes // 2, nodes + 1, (count,), generator=generator) for _ in range(2)),
    )


def heaviest_relation(similarity: list, pred_reach: list, ref_reach: list, constraint: str) -> float:
    """The best of all relations, pair by pair."""

    def agree(pair: tuple[int, int], other: tuple[int, int]) -> bool:
        (u, v), (s, t) = pair, other
        if u == s and constraint in ("<->", "->") or v == t and constraint in ("<->", "<-"):
            return False
        return pred_reach[u][s] == ref_reach[v][t] and pred_reach[s][u] == ref_reach[t][v]

    def extend(candidates: list[tuple[int, int]]) -> float:
        values = [0.0]
        for i, (u, v) in enumerate(candidates):
            values.append(similarity[u][v] + extend([c for c in candidates[i + 1 :] if agree((u, v), c)]))
        return max(values)

    return extend([(u, v) for u, row in enumerate(similarity) for v, value in enumerate(row) if value > 0])


def test_reachability_against_walks(device):
    source = random.Random(0)
    for nodes in (0, 1, 2, 5, 9):
        edges = [[source.randrange(nodes), source.randrange(nodes)] for _ in range(nodes)]
        reachable = [[u == v for v in range(nodes)] for u in range(nodes)]
        for _ in range(nodes):
            for u, v in edges:
                reachable = [[row[w] or (row[u] and w == v) for w in range(nodes)] for row in reachable]
        assert reachability(adjacency(nodes, edges).to(device)).tolist() == reachable
    chain = adjacency(9, [[i, i + 1] for i in range(8)]).to(device)
    assert reachability(chain)[0].all() and not reachability(chain)[1, 0]


@pytest.mark.parametrize("case", GOLDEN["graph"], ids=[case["id"] for case in GOLDEN["graph"]])
def test_graph_overlap_golden_cases_match(case, device):
    inputs = case["input"]
    pred, ref = inputs["pred_labels"], inputs["ref_labels"]
    similarity = inputs.get("similarity", [[float(a == b) for b in ref] for a in pred])
    similarity = torch.tensor(similarity, dtype=torch.float64, device=device).view(len(pred), len(ref))
    edges = [(len(inputs[f"{part}_labels"]), inputs[f"{part}_edges"]) for part in ("pred", "ref")]
    reachable = [reachability(adjacency(*part).to(device)) for part in edges]
    for constraint, expected in case["output"].items():
        solution = graph_overlap(similarity, *reachable, constraint=constraint)
        assert solution.exact and float(solution.value) == pytest.approx(expected, abs=1e-9)
        assert solution.bound == solution.value
        searched = graph_overlap(similarity, *reachable, constraint=constraint, solver="search")
        assert searched.value <= expected + 1e-9 and expected <= searched.bound + 1e-9


LARGE = [(6, False), (7, True), (7, False)]


@pytest.mark.parametrize(
    ("nodes", "full"),
    [(3, True), (4, False), (5, True), *(pytest.param(*row, marks=pytest.mark.full) for row in LARGE)],
)
def test_graph_overlap_matches_enumeration(nodes, full, device):
    """25 documents for each constraint: every solver brackets the optimum, and `exact` is right."""
    documents = random_documents(25, nodes, full)
    for constraint in CONSTRAINTS:
        optimum = []
        for similarity, pred_reach, ref_reach, n, m in zip(*documents, strict=True):
            parts = (similarity[:n, :m], pred_reach[:n, :n], ref_reach[:m, :m])
            optimum.append(heaviest_relation(*(part.tolist() for part in parts), constraint))
        optimum = torch.tensor(optimum, dtype=torch.float64)
        for options in SOLVERS:
            solution = graph_overlap(*(x.to(device) for x in documents), constraint, **options)
            value, bound, exact = (x.cpu() for x in solution)
            assert bool(((value <= optimum + 1e-9) & (optimum <= bound + 1e-9)).all())
            assert torch.equal(exact, value == bound)
            assert torch.allclose(value[exact], optimum[exact], rtol=0, atol=1e-9)
            assert options not in SOLVERS[:2] or bool(exact.all())


def test_graph_overlap_reusable_node_matches_cycle(device):
    cycle = torch.ones(3, 3, dtype=torch.bool, device=device)
    one, ones = torch.ones(1, 1, dtype=torch.bool, device=device), torch.ones(3, 1, device=device)
    values = [float(graph_overlap(ones, cycle, one, constraint=constraint).value) for constraint in CONSTRAINTS]
    assert values == [1, 3, 1, 3]


def test_nan_and_parts(monkeypatch, device):
    documents = [x.to(device) for x in random_documents(9, 5, False)]
    documents[0][3, 0, 0] = torch.nan
    documents[0][4] = -torch.inf
    solution = graph_overlap(*documents)
    assert solution.value.isnan().nonzero().tolist() == solution.bound.isnan().nonzero().tolist() == [[3]]
    assert not solution.exact[3] and solution.value[4] == 0 and solution.exact[4]
    monkeypatch.setattr(_lengths, "SMALL_CELLS", 0)
    monkeypatch.setattr(_lengths, "CELLS", 1)
    monkeypatch.setattr(_lengths, "GPU_CELLS", 1)
    for part, full in zip(graph_overlap(*documents), solution, strict=True):
        assert torch.equal(part.nan_to_num(7), full.nan_to_num(7))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"similarity": torch.zeros(2, 3).long()},
            "similarity: got torch.int64, wanted a floating dtype; write similarity.float()",
        ),
        (
            {"pred_reach": torch.zeros(2, 2)},
            "pred_reach: got torch.float32, wanted torch.bool; write pred_reach.bool()",
        ),
        ({"ref_reach": torch.zeros(2, 2).bool()}, "ref_reach: got shape (2, 2), wanted (3, 3)"),
        ({"ref_reach": torch.zeros(3, 2).bool()}, "ref_reach: got shape (3, 2), wanted (..., 2, 2)"),
        ({"n_ref": torch.tensor(1.0)}, "n_ref: got torch.float32, wanted an integer dtype; write n_ref.long()"),
        ({"solver": None}, "solver: got None, wanted one of 'auto', 'exact', 'search'"),
    ],
)
def test_graph_overlap_invalid_arguments_raise(change, message):
    reachable = {"pred_reach": torch.eye(2).bool(), "ref_reach": torch.eye(3).bool()}
    with raises(ValueError, message):
        graph_overlap(**({"similarity": torch.zeros(2, 3)} | reachable | change))


def test_reachability_invalid_shape_raises():
    with raises(ValueError, "adjacency: got shape (2, 3), wanted (..., 3, 3)"):
        reachability(torch.zeros(2, 3).bool())
