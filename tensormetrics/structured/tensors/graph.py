"""The overlap of two graphs: the heaviest relation of nodes that preserves reachability."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.native.native import needs_derivative
from ._integer_program import PROOF, IntegerProgram, SolverResult, check_solver, relax, solve
from ._lengths import cuts, documents
from .constraints import Constraint
from .overlap import read_similarity, set_overlap

STARTS = 8  # of the search


@takes_arrays
def reachability(adjacency: Tensor) -> Tensor:
    """Compute which nodes are reachable along edges in any number of steps; every node reaches itself.

    Shapes: adjacency: (..., N, N) bool -> (..., N, N) bool.

    >>> reachability(torch.tensor([[0, 1, 0], [0, 0, 1], [0, 0, 0]]).bool()).int()
    tensor([[1, 1, 1],
            [0, 1, 1],
            [0, 0, 1]], dtype=torch.int32)
    """
    _check_square("adjacency", adjacency)
    n = adjacency.shape[-1]
    reach = adjacency | torch.eye(n, dtype=torch.bool, device=adjacency.device)
    for _ in range(max(n - 1, 1).bit_length()):  # each squaring doubles the steps
        reach = reach.float() @ reach.float() > 0
    return reach


@takes_arrays
def graph_overlap(
    similarity: Tensor,
    pred_reach: Tensor,
    ref_reach: Tensor,
    n_pred: Tensor | None = None,
    n_ref: Tensor | None = None,
    constraint: str | Constraint = "<->",
    solver: str = "auto",
    node_limit: int = 200_000,
) -> SolverResult:
    """Compute the largest sum of similarities over node pairs that a constraint allows and that agree on reachability.

    Shapes: similarity: (..., N, M); pred_reach: (..., N, N) bool; ref_reach: (..., M, M) bool; n_pred: (...); n_ref:
    (...).

    Two pairs agree if one predicted node reaches the other exactly when their reference nodes do so, in both
    directions; see `reachability`. Lengths, NaN and pairs of similarity <= 0 are treated as in `set_overlap`, which
    gives the first bound. The value is differentiable through the selected pairs.

    The problem is NP-hard. `solver="search"` is a local search of all documents at once; "auto" solves documents with
    an unproved value by scipy's integer programs, with at most `node_limit` nodes each; "exact" has no limit.

    >>> chain = reachability(torch.tensor([[0, 1], [0, 0]]).bool())
    >>> graph_overlap(torch.eye(2), chain, chain.mT).value
    tensor(1., dtype=torch.float64)
    """
    constraint = Constraint.parse(constraint)
    nodes = check_solver(solver, node_limit)
    checks.tensor("similarity", similarity)
    gain, *lengths, valid = read_similarity(similarity.detach(), n_pred, n_ref)
    *batch, n, m = gain.shape
    for name, reach, size in (("pred_reach", pred_reach, n), ("ref_reach", ref_reach, m)):
        _check_square(name, reach)
        checks.shape(name, reach, *batch, size, size)
        checks.same_device(similarity=similarity, **{name: reach})
    parts = [documents(x, 2) for x in (gain.double(), pred_reach, ref_reach)]
    value, bound = (parts[0].new_empty(len(parts[0])) for _ in range(2))
    pairs = torch.zeros_like(parts[0], dtype=torch.bool)
    for index, (n, m) in cuts([documents(length, 0) for length in lengths], (n, m), lambda n, m: STARTS * n * m):
        weight, pred, ref = (x[:, :h, :w][index] for x, h, w in zip(parts, (n, n, m), (m, n, m), strict=True))
        value[index], bound[index], pairs[:, :n, :m][index] = _solve(weight, pred, ref, constraint, solver, nodes)
    value, bound = (x.reshape(batch).masked_fill(~valid, torch.nan) for x in (value, bound))
    exact = value == bound
    if needs_derivative(similarity):
        total = similarity.where(pairs.reshape(similarity.shape), 0).sum((-2, -1), dtype=torch.float64)
        value = value + (total - total.detach())  # adds 0 with the derivative of the selected pairs
    return SolverResult(value, bound, exact)


def _solve(
    gain: Tensor,  # (D, N, M)
    pred_reach: Tensor,  # (D, N, N)
    ref_reach: Tensor,  # (D, M, M)
    constraint: Constraint,
    solver: str,
    node_limit: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    # -> value (D,), bound (D,), pairs (D, N, M) bool
    links = _links(pred_reach, ref_reach, constraint)
    pairs = _best_set(gain, constraint)
    bound = (gain * pairs).sum((-2, -1))
    agree = ((_agreeing(pairs.double(), links) == pairs.sum((-2, -1), keepdim=True)) | ~pairs).flatten(1).all(-1)
    climbed, climbed_pairs = _climb(gain, links)
    value, pairs = bound.where(agree, climbed), pairs.where(agree[:, None, None], climbed_pairs)
    if solver != "search":
        value, bound, pairs = _prove(gain, links, value, bound, pairs, node_limit)
    return value, bound, pairs


def _prove(
    gain: Tensor,  # (D, N, M)
    links: "Links",
    value: Tensor,  # (D,)
    bound: Tensor,  # (D,)
    pairs: Tensor,  # (D, N, M) bool
    node_limit: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, bound and pairs, those of unproved documents replaced by solutions of integer programs.

    The programs run on the host; all these documents are copied there and back as one table.
    """
    unproved = (value < bound).nonzero()[:, 0]
    if not len(unproved):
        return value, bound, pairs
    n, m = gain.shape[1:]
    tables = [gain, *links.pred, *links.ref]
    columns = [value[:, None], bound[:, None], *(table.flatten(1) for table in tables)]
    # Through lists: tensors inside of torch.func transforms have no storage that numpy could read.
    documents = np.array(torch.cat([column[unproved] for column in columns], 1).tolist())
    proofs = []
    for document in documents:
        ends, weight, pred, ref = np.split(document, np.cumsum([2, n * m, 5 * n * n]))
        program = _program(weight.reshape(n, m), pred.reshape(5, n, n), ref.reshape(5, m, m))
        lower, upper = ends.tolist()
        proofs.append(_proof(program, lower, upper, node_limit, weight > 0))
    results = torch.tensor(np.stack(proofs), device="cpu").to(gain.device, non_blocking=True)
    is_better = results[:, 0] > value[unproved]
    proved = (results[:, 2:] > 0).view(-1, n, m).where(is_better[:, None, None], pairs[unproved])
    return (
        value.index_copy(0, unproved, results[:, 0]),
        bound.index_copy(0, unproved, results[:, 1]),
        pairs.index_copy(0, unproved, proved),
    )


def _proof(
    program: IntegerProgram, lower: float, upper: float, node_limit: int | None, is_column: np.ndarray
) -> np.ndarray:
    # is_column: (N M,) bool  ->  (2 + N M,): value, bound, and the pairs if the value is above `lower`
    upper = min(upper, relax(program).bound)
    pairs = np.zeros(len(is_column))
    if lower * (1 + PROOF) < upper:
        answer = solve(program, lower, node_limit)
        if (weight := program.weight @ answer.selected) > lower:
            lower = float(weight)
            pairs[is_column] = answer.selected > 0
        upper = min(upper, answer.bound)
    return np.concatenate([[lower, upper if lower * (1 + PROOF) < upper else lower], pairs])


def _check_square(name: str, relation: Tensor) -> None:
    checks.tensor(name, relation)
    checks.shape(name, relation, "...", *relation.shape[-1:] * 2)
    if relation.dtype != torch.bool:
        raise ValueError(f"{name}: got {relation.dtype}, wanted torch.bool; write {name}.bool()")


class Links(NamedTuple):
    """Relations of two nodes of one graph, a plane for each of five kinds.

    The kinds: neither node reaches the other, the second reaches the first, the first the second, both reach each
    other, they are the same. Plane k of `ref` has the pairs that a predicted pair of kind k may be matched to: a
    reusable node may be split over nodes that reach each other.
    """

    pred: Tensor  # (5, D, N, N) float64, 0 or 1
    ref: Tensor  # (5, D, M, M)


def _links(pred_reach: Tensor, ref_reach: Tensor, constraint: Constraint) -> Links:
    # pred_reach: (D, N, N)  ref_reach: (D, M, M)
    def planes(reach: Tensor) -> list[Tensor]:
        same = torch.eye(reach.shape[-1], dtype=torch.bool, device=reach.device).expand_as(reach)
        other = ((~reach, ~reach.mT), (~reach, reach.mT), (reach, ~reach.mT), (reach, reach.mT))
        return [*(out & back & ~same for out, back in other), same]

    pred, ref = planes(pred_reach), planes(ref_reach)
    mutual, same = ref[3:]
    for plane, is_once in zip((4, 3), constraint.once, strict=True):
        ref[plane] = ref[plane] if is_once else mutual | same
    return Links(torch.stack(pred).double(), torch.stack(ref).double())


def _agreeing(pairs: Tensor, links: Links) -> Tensor:
    # pairs: (..., D, N, M) weights  ->  (..., D, N, M): total weight of the pairs that agree with each pair
    return sum(pred @ pairs @ ref.mT for pred, ref in zip(*links, strict=True))


def _best_set(gain: Tensor, constraint: Constraint) -> Tensor:
    # gain: (D, N, M)  ->  (D, N, M) bool: the pairs of the heaviest relation, ignoring edges
    if constraint is Constraint.MANY_TO_MANY or 0 in gain.shape[1:]:
        return gain > 0
    _, ref_of_pred, pred_of_ref = set_overlap(gain, constraint=constraint, return_pairs=True)
    if ref_of_pred is None:
        assert pred_of_ref is not None  # predicted or reference nodes have at most one partner
        return pred_of_ref[:, None] == torch.arange(gain.shape[1], device=gain.device)[:, None]
    return ref_of_pred[..., None] == torch.arange(gain.shape[2], device=gain.device)


def _climb(gain: Tensor, links: Links) -> tuple[Tensor, Tensor]:
    # gain: (D, N, M)  ->  value (D,), pairs (D, N, M) bool
    """Return the heaviest of several local optima.

    Each search starts from the best pair of one predicted node. It adds the pair whose gain exceeds that of the pairs
    which disagree with it the most, while the sum grows.
    """
    d, n, m = gain.shape
    if n == 0 or m == 0:
        return gain.sum((-2, -1)), gain > 0
    best, partner = gain.max(-1)
    first = best.sort(stable=True, dim=-1, descending=True).indices[:, :STARTS]  # (D, Q)
    move = (first * m + partner.gather(-1, first)).mT
    pairs = _one_hot(move, n, m) & (gain > 0)  # (Q, D, N, M)
    document = torch.arange(d, device=gain.device)
    while True:
        weight = gain * pairs
        lost = weight.sum((-2, -1), keepdim=True) - _agreeing(weight, links)
        won = (gain - lost).masked_fill(pairs, 0)
        max_gain, move = won.flatten(-2).max(-1)
        better = max_gain > PROOF * gain.amax((-2, -1))
        if not better.any():
            value, start = weight.sum((-2, -1)).max(0)
            return value, pairs[start, document]
        u, v = move // m, move % m
        agree = torch.einsum("kqdn,kqdm->qdnm", links.pred[:, document, u], links.ref[:, document, v]) > 0
        pairs = ((pairs & agree) | _one_hot(move, n, m)).where(better[..., None, None], pairs)


def _one_hot(cell: Tensor, n: int, m: int) -> Tensor:
    # cell: (...) of a flattened table  ->  (..., N, M) bool
    return (cell[..., None] == torch.arange(n * m, device=cell.device)).unflatten(-1, (n, m))


def _program(gain: np.ndarray, pred: np.ndarray, ref: np.ndarray) -> IntegerProgram:
    # gain: (N, M)  pred: (5, N, N)  ref: (5, M, M)
    """Return a program with a column per pair and a row per clique of conflicting pairs."""
    u, v = gain.nonzero()
    families = _cliques((pred[:, u][:, :, u] * ref[:, v][:, :, v]).sum(0) == 0)
    row = np.repeat(np.arange(len(families)), [len(family) for family in families])
    return IntegerProgram(gain[u, v], row, np.concatenate(families), np.ones(len(row)), np.ones(len(families)))


def _cliques(conflict: np.ndarray) -> list[np.ndarray]:
    # conflict: (K, K) bool, symmetric
    """Cover all conflicts greedily by maximal cliques of pairs in mutual conflict."""
    uncovered, cliques = conflict.copy(), []
    while uncovered.any():
        clique = list(np.unravel_index(uncovered.argmax(), uncovered.shape))
        candidates = conflict[clique].all(0)
        while candidates.any():
            clique.append(np.where(candidates, uncovered[clique].sum(0), -1).argmax())
            candidates &= conflict[clique[-1]]
        uncovered[np.ix_(clique, clique)] = False
        cliques.append(np.array(clique))
    return cliques
