"""Node of graphs: nodes are matched so that reachability agrees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...tensors._integer_program import SolverResult
from ...tensors._pairs import expand
from ...tensors.graph import graph_overlap, reachability
from ..columns import RowPath, check
from .set import Bounded, BoundedRows


@dataclass(eq=False)
class GraphRows(BoundedRows):
    first: Tensor  # (n,) int64: the first edge of each graph
    edges: Tensor  # (n,) int64: the number of edges of each graph
    ends: Tensor  # (edges, 2) int64: indices of nodes within their graph


class Graph(Bounded):
    """Heaviest relation of nodes that agrees on reachability; see `graph_overlap`.

    A value has `nodes()`, hashable, and `successors(node)`.
    """

    ordered = "a graph"

    def check(self, values: Sequence[Any], where: RowPath) -> None:
        is_graph = "a graph with nodes() and successors(node)"
        check(values, where, lambda value: hasattr(value, "nodes") and hasattr(value, "successors"), is_graph)

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> GraphRows:
        rows = super().encode(values, split, where, device)
        ends = [_edges(graph, partial(where, row)) for row, graph in enumerate(values)]
        edges = torch.tensor(list(map(len, ends)), dtype=torch.int64, device=device)
        table = torch.tensor([end for graph in ends for end in graph], dtype=torch.int64, device=device).view(-1, 2)
        return GraphRows(rows.start, rows.count, rows.items, rows.key, edges.cumsum(0) - edges, edges, table)

    def solve(self, rows: GraphRows, i: Tensor, j: Tensor, distinct: bool) -> tuple[Tensor, Tensor]:
        return self._solve(rows, self.dense(rows, i, j), i, j)[:2]

    def relation(self, rows: GraphRows, i: Tensor, j: Tensor) -> list[tuple[int, int]]:
        """Return the pairs of nodes that the value requires; the others are removed one by one, the last first."""
        gain = self.dense(rows, i, j).clamp(min=0)
        value = self._solve(rows, gain, i, j).value
        for a, b in reversed(gain[0].nonzero().tolist()):
            without = gain.clone()
            without[0, a, b] = 0
            if self._solve(rows, without, i, j).value >= value * (1 - 1e-12):
                gain = without
        return gain[0].nonzero().tolist()

    def _solve(self, rows: GraphRows, similarity: Tensor, i: Tensor, j: Tensor) -> SolverResult:
        # similarity: (P, N, M)
        reachable = self._reachability(rows, i), self._reachability(rows, j)
        return graph_overlap(similarity, *reachable, rows.count[i], rows.count[j], self.constraint)

    def _reachability(self, rows: GraphRows, i: Tensor) -> Tensor:
        # i: (P,)  ->  (P, N, N) bool
        owner, edge = expand(rows.first[i], rows.edges[i])
        size = int(rows.count[i].max()) if len(i) else 0
        adjacency = torch.zeros(len(i), size, size, dtype=torch.bool, device=i.device)
        true = torch.ones_like(owner, dtype=torch.bool)
        return reachability(adjacency.index_put_((owner, *rows.ends[edge].unbind(1)), true))


def _edges(graph: Any, where: Callable[[], str]) -> list[tuple[int, int]]:
    """Return the edges of a graph as indices of its nodes."""
    node_index = {node: index for index, node in enumerate(graph.nodes())}
    edges = [(node, after) for node in node_index for after in graph.successors(node)]
    for node, after in edges:
        if after not in node_index:
            raise ValueError(f"{where()}: got an edge from {node!r} to {after!r}, which is not among its nodes()")
    return [(node_index[node], node_index[after]) for node, after in edges]


def nodes_of(graph: Any) -> list[Any]:
    return list(graph.nodes())
