"""Exact answers of NP-hard overlaps: the heaviest 0/1 choice under linear rows."""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ... import _checks

PROOF = 1e-9  # relative gap below which a value counts as proved, if weights are not whole numbers


class Solved(NamedTuple):
    """A value that is reached, and a bound that no solution exceeds. `exact`: they are proved to be the same."""

    value: Tensor  # (...) float64
    bound: Tensor  # (...) float64
    exact: Tensor  # (...) bool


class IntegerProgram(NamedTuple):
    """Take columns so that rows @ taken <= limit. The rows are sparse: an entry has a row, a column, a coefficient."""

    weight: np.ndarray  # (C,) >= 0
    row: np.ndarray  # (E,)
    column: np.ndarray  # (E,)
    coefficient: np.ndarray  # (E,)
    limit: np.ndarray  # (L,)


class Answer(NamedTuple):
    taken: np.ndarray  # (C,) in [0, 1]
    bound: float  # no choice weighs more


def check_solver(solver: str, node_limit: int) -> int | None:
    """The limit of nodes that `solver` works under; None for no limit."""
    _checks.check_choice("solver", solver, ("auto", "exact", "search"))
    limit = _checks.check_int("node_limit", node_limit, 0)
    return limit if solver == "auto" else None


def relax(programme: IntegerProgram) -> Answer:
    """The best choice if columns may be taken in part."""
    scale = _scale(programme.weight)
    found = _milp(programme._replace(weight=scale * programme.weight), whole_columns=False)
    if found.x is None:
        return Answer(np.zeros(len(programme.weight)), programme.weight.sum())
    return Answer(found.x, _round_down(-found.fun / scale, programme.weight))


def solve(programme: IntegerProgram, value: float, node_limit: int | None) -> Answer:
    """A choice of more than `value`, which some choice weighs, or no better; the bound is the most that one weighs,
    unless the search had to stop after `node_limit` nodes."""
    weight, limit, scale = programme.weight, programme.limit, _scale(programme.weight)
    least = value + 1 if _is_whole(weight) else value * (1 - PROOF)
    better = IntegerProgram(
        scale * weight,
        np.append(programme.row, np.full(len(weight), len(limit))),
        np.append(programme.column, np.arange(len(weight))),
        np.append(programme.coefficient, -scale * weight),
        np.append(limit, -scale * least),
    )
    found = _milp(better, whole_columns=True, node_limit=node_limit)
    if found.status == INFEASIBLE:
        return Answer(np.zeros(len(weight)), value)
    taken = np.zeros(len(weight)) if found.x is None else found.x.round()
    if found.status == SOLVED:
        return Answer(taken, float(weight @ taken))
    told = found.status == OUT_OF_NODES and found.mip_dual_bound is not None
    most = -found.mip_dual_bound / scale if told else weight.sum()
    return Answer(taken, max(value, _round_down(most, weight)))


SOLVED, OUT_OF_NODES, INFEASIBLE = range(3)  # the status of scipy.optimize.milp


def _milp(programme: IntegerProgram, whole_columns: bool, node_limit: int | None = None) -> Any:
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ImportError as error:
        raise ImportError(
            "solver: 'auto' and 'exact' prove their values with scipy; write pip install scipy, or solver='search'"
        ) from error
    weight, row, column, coefficient, limit = programme
    rows = csr_array((coefficient, (row, column)), (len(limit), len(weight)))
    return milp(
        -weight,
        integrality=np.full(len(weight), int(whole_columns)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(rows, -np.inf, limit),
        options={"mip_rel_gap": 0.0, "presolve": False} | ({} if node_limit is None else {"node_limit": node_limit}),
    )


def _is_whole(weight: np.ndarray) -> bool:
    return bool((weight == weight.round()).all())


def _scale(weight: np.ndarray) -> float:
    # The solver's tolerances are absolute, 1e-6 and less: whole weights never notice, others are made large.
    return 1.0 if _is_whole(weight) else 1e4 / weight.max()


def _round_down(bound: float, weight: np.ndarray) -> float:
    return float(np.floor(bound + 1e-4)) if _is_whole(weight) else float(bound)
