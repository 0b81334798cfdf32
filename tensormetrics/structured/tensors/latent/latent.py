"""The overlap of two collections of items with variables under the best one-to-one mapping of the variables."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from ....core.arguments import checks
from ....core.arguments.checks import takes_arrays
from ....core.resampling.weights import ResamplingUnits
from .. import _lengths
from .._integer_program import check_solver
from .._lengths import cuts
from ..constraints import Constraint
from ..overlap import Overlap
from ..reduction import OverlapMetric
from .exact import prove
from .search import bound_and_mapping
from .terms import Terms, VariableItems, read_terms

TABLES = 4  # cells of the search's tables that count as one cell of a chunk


class SolvedMapping(NamedTuple):
    """A value, an upper bound of all mappings, and the mapping that reaches the value."""

    value: Tensor  # (...) float64
    bound: Tensor  # (...) float64
    exact: Tensor  # (...) bool: value and bound are proved to be equal
    mapping: Tensor  # (..., V) int64: reference variable of each predicted one, -1 if it would match no item


@takes_arrays
def latent_overlap(
    pred_props: Tensor,
    pred_is_var: Tensor,
    ref_props: Tensor,
    ref_is_var: Tensor,
    n_pred: Tensor | None = None,
    n_ref: Tensor | None = None,
    constraint: str | Constraint = "<->",
    solver: str = "auto",
    restarts: int = 4,
    node_limit: int = 200_000,
    seed: int = 0,
    duplicates: str = "multiset",
) -> SolvedMapping:
    """Compute the largest `multiset_overlap` of items with F columns over one-to-one mappings of the variables.

    Shapes: pred_props: (..., N, F) int64; pred_is_var: (..., N, F) bool; ref_props: (..., M, F) int64; ref_is_var:
    (..., M, F) bool; n_pred: (...); n_ref: (...).

    If `is_var`, an entry is a variable's number, from 0, separate for prediction and reference; else it is a constant
    of both. Items match if their constants are equal and the mapping sends the variables of the predicted item to those
    of the reference item, column by column. With `duplicates="set"` equal items count once. `n_pred` and `n_ref` are
    the numbers of items; entries beyond them never matter.

    The problem is NP-hard. `solver="search"` is a local search of all documents at once from `restarts` random mappings
    and three others, with an upper bound; "auto" solves documents with a value below their bound by scipy's integer
    programs, with at most `node_limit` nodes each; "exact" has no limit. Equal input and `seed` give equal results.

    S. Cai, K. Knight, 2013, Smatch: an evaluation metric for semantic feature structures, aclanthology.org/P13-2131

    >>> pred, ref = torch.tensor([[7, 0, 1]]), torch.tensor([[7, 1, 0]])  # the triple (7, x, y) in both
    >>> is_var = torch.tensor([[False, True, True]])
    >>> latent_overlap(pred, is_var, ref, is_var).mapping
    tensor([1, 0])
    """
    constraint = Constraint.parse(constraint)
    checks.check_choice("duplicates", duplicates, ("multiset", "set"))
    nodes = check_solver(solver, node_limit)
    restarts = checks.check_int("restarts", restarts, 0)
    seed = checks.check_int("seed", seed, 0)
    pred = _read_items("pred", pred_props, pred_is_var, n_pred)
    ref = _read_items("ref", ref_props, ref_is_var, n_ref)
    *batch, _, width = pred_props.shape
    checks.shape("ref_props", ref_props, *batch, "M", width)
    checks.same_device(pred_props=pred_props, ref_props=ref_props)
    counts = pred.valid.sum(-1), ref.valid.sum(-1), pred.variables(), ref.variables()
    sizes = torch.stack(counts).cpu().unbind()
    value, bound = (torch.empty(len(pred.props), dtype=torch.float64, device=pred_props.device) for _ in range(2))
    mapping = pred.props.new_full((len(value), int(sizes[2].max()) if len(value) else 0), -1)
    for index, (n, m, *_) in cuts(sizes, (), lambda n, m, p, r: n + m + (restarts + 3) * (p + 1) * (r + 1) // TABLES):
        terms = read_terms(pred.select(index, n), ref.select(index, m), constraint, duplicates == "set")
        value[index], bound[index], chunk_mapping = _solve(terms, solver, restarts, nodes, seed)
        mapping[index, : terms.p] = chunk_mapping.where(chunk_mapping < terms.r, -1)
    return SolvedMapping(*(x.reshape((*batch, *x.shape[1:])) for x in (value, bound, value == bound, mapping)))


def _solve(terms: Terms, solver: str, restarts: int, nodes: int | None, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    # -> value (D,), bound (D,), mapping (D, P)
    bound, value, mapping = bound_and_mapping(terms, restarts, seed)
    unproved = (value < bound).nonzero()[:, 0]
    if solver != "search" and len(unproved):
        # Integer programs run on the host: the terms of all documents that need one are copied there at once.
        host = torch.device("cpu")
        upper, lower, start = (x[unproved].to(host) for x in (bound, value, mapping))
        proved = prove(terms.select(unproved).to(host), upper, lower, start, nodes)
        bound[unproved], value[unproved], mapping[unproved] = (x.to(bound.device, non_blocking=True) for x in proved)
    return terms.free + value, terms.free + bound, mapping


def _read_items(prefix: str, props: Tensor, is_var: Tensor, n: Tensor | None) -> VariableItems:
    checks.shape(f"{prefix}_props", props, "...", "NM"[prefix == "ref"], "F")
    checks.integral(f"{prefix}_props", props)
    checks.shape(f"{prefix}_is_var", is_var, *props.shape)
    if is_var.dtype != torch.bool:
        raise ValueError(f"{prefix}_is_var: got {is_var.dtype}, wanted torch.bool; write {prefix}_is_var.bool()")
    checks.same_device(**{f"{prefix}_props": props, f"{prefix}_is_var": is_var})
    *batch, size, width = props.shape
    valid = _lengths.mask(_lengths.full_or_clamped(f"n_{prefix}", n, props, batch, size), size)
    is_var = is_var & valid[..., None]
    if bool((props.where(is_var, 0) < 0).any()):
        raise ValueError(f"{prefix}_props: got a negative number of a variable, wanted numbers from 0")
    flat = (math.prod(batch), size)
    return VariableItems(props.long().reshape(*flat, width), is_var.reshape(*flat, width), valid.reshape(flat))


class LatentMatch(OverlapMetric):
    """Scores of items with variables; see `latent_overlap`, `normalize` and `Policy`.

    Under `~`, and if equal items count once, the self-overlaps are solved too. `update` solves on the host: on a GPU it
    synchronizes once, for the copy of its arguments.

    Args:
        solver: "search", a local search; "auto", then integer programs where a bound is above the value; "exact",
            without a limit of nodes.
        restarts: Number of random mappings from which the search starts.
        node_limit: Largest number of nodes of an integer program of "auto".
        seed: Seed of the starts.

    >>> metric = LatentMatch()
    >>> pred, ref = torch.tensor([[7, 0, 1]]), torch.tensor([[7, 1, 0]])
    >>> is_var = torch.tensor([[False, True, True]])
    >>> metric.update(pred, is_var, ref, is_var)
    >>> metric.compute()["f1"]
    tensor(1., dtype=torch.float64)
    """

    def __init__(
        self,
        *args: Any,
        solver: str = "auto",
        restarts: int = 4,
        node_limit: int = 200_000,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, seed=seed, **kwargs)
        check_solver(solver, node_limit)
        checks.check_int("restarts", restarts, 0)
        self._overlap: Callable[..., SolvedMapping] = functools.partial(
            latent_overlap,
            constraint=self.constraint,
            solver=solver,
            restarts=restarts,
            node_limit=node_limit,
            seed=seed,
            duplicates="set" if self.policy.duplicates == "set" else "multiset",
        )

    def update(
        self,
        pred_props: Tensor,
        pred_is_var: Tensor,
        ref_props: Tensor,
        ref_is_var: Tensor,
        n_pred: Tensor | None = None,
        n_ref: Tensor | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents.

        Shapes: pred_props: (..., N, F) int64; pred_is_var: (..., N, F) bool; ref_props: (..., M, F) int64; ref_is_var:
        (..., M, F) bool; n_pred: (...); n_ref: (...).
        """
        device = pred_props.device if isinstance(pred_props, Tensor) else None
        tables = [pred_props, pred_is_var, ref_props, ref_is_var]
        *tables, n_pred, n_ref = _on_host([*tables, n_pred, n_ref])
        pred, ref = tables[:2], tables[2:]
        cross = self._overlap(*pred, *ref, n_pred, n_ref).value
        *batch, n, _ = pred[0].shape
        full_pred = _lengths.full_or_clamped("n_pred", n_pred, pred[0], batch, n)
        full_ref = _lengths.full_or_clamped("n_ref", n_ref, ref[0], batch, ref[0].shape[-2])
        self_overlaps = (full_pred, full_ref)
        if self.constraint is Constraint.MANY_TO_MANY or self.policy.duplicates == "set":
            self_overlaps = tuple(self._overlap(*x, *x, n, n).value for x, n in ((pred, n_pred), (ref, n_ref)))
        columns = (x.to(device, non_blocking=True) for x in (cross, *self_overlaps, full_pred, full_ref))
        *overlap, full_pred, full_ref = columns
        self.add_overlap(Overlap(*overlap), full_pred, full_ref, **items)


def _on_host(tensors: list[Any]) -> list[Any]:
    """Copy tensors of one device to the host in one transfer of their bytes; other values are returned unchanged."""
    values = [x for x in tensors if x is not None]
    devices = {x.device if isinstance(x, Tensor) else None for x in values}
    if len(devices) > 1 or None in devices or torch.device("cpu") in devices:
        return tensors  # invalid arguments raise an error later
    order = sorted(range(len(values)), key=lambda i: -values[i].element_size())  # for aligned views
    parts = [values[i].detach().contiguous().flatten().view(torch.uint8) for i in order]
    bytes_on_host = torch.cat(parts).cpu().split([len(part) for part in parts])
    moved = {
        id(values[i]): part.view(values[i].dtype).view(values[i].shape)
        for i, part in zip(order, bytes_on_host, strict=True)
    }
    return [moved.get(id(x), x) for x in tensors]
