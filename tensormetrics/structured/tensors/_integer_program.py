"""Exact solutions of NP-hard overlaps: 0/1 selections of largest weight under linear constraints."""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ... import _checks

PROOF = 1e-9  # relative gap below which a value counts as proved, unless all weights are integers


class Solved(NamedTuple):
    """A value that a solution reaches and an upper bound of all solutions. `exact`: they are proved to be equal."""

    value: Tensor  # (...) float64
    bound: Tensor  # (...) float64
    exact: Tensor  # (...) bool


class IntegerProgram(NamedTuple):
    """Selection of columns such that rows @ selected <= limit. The sparse rows are (row, column, coefficient)."""

    weight: np.ndarray  # (C,) >= 0
    row: np.ndarray  # (E,)
    column: np.ndarray  # (E,)
    coefficient: np.ndarray  # (E,)
    limit: np.ndarray  # (L,)


class Answer(NamedTuple):
    selected: np.ndarray  # (C,) in [0, 1]
    bound: float  # of the weight of every selection


def check_solver(solver: str, node_limit: int) -> int | None:
    """Return the node limit of `solver`; None is no limit."""
    _checks.check_choice("solver", solver, ("auto", "exact", "search"))
    limit = _checks.check_int("node_limit", node_limit, 0)
    return limit if solver == "auto" else None


def relax(program: IntegerProgram) -> Answer:
    """Solve the linear relaxation, which may select fractions of columns."""
    scale = _scale(program.weight)
    result = _milp(program._replace(weight=scale * program.weight), integral=False)
    if result.x is None:
        return Answer(np.zeros(len(program.weight)), program.weight.sum())
    return Answer(result.x, _round_down(-result.fun / scale, program.weight))


def solve(program: IntegerProgram, value: float, node_limit: int | None) -> Answer:
    """Search for a selection heavier than `value`, the weight of a known one.

    The bound is the largest possible weight, unless the search stopped after `node_limit` nodes.
    """
    weight, limit, scale = program.weight, program.limit, _scale(program.weight)
    min_value = value + 1 if _is_integral(weight) else value * (1 - PROOF)
    better = IntegerProgram(
        scale * weight,
        np.append(program.row, np.full(len(weight), len(limit))),
        np.append(program.column, np.arange(len(weight))),
        np.append(program.coefficient, -scale * weight),
        np.append(limit, -scale * min_value),
    )
    result = _milp(better, integral=True, node_limit=node_limit)
    if result.status == INFEASIBLE:
        return Answer(np.zeros(len(weight)), value)
    selected = np.zeros(len(weight)) if result.x is None else result.x.round()
    if result.status == SOLVED:
        return Answer(selected, float(weight @ selected))
    has_bound = result.status == OUT_OF_NODES and result.mip_dual_bound is not None
    upper_bound = -result.mip_dual_bound / scale if has_bound else weight.sum()
    return Answer(selected, max(value, _round_down(upper_bound, weight)))


SOLVED, OUT_OF_NODES, INFEASIBLE = range(3)  # the status of scipy.optimize.milp


def _milp(program: IntegerProgram, integral: bool, node_limit: int | None = None) -> Any:
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ImportError as error:
        raise ImportError(
            "solver: 'auto' and 'exact' prove their values with scipy; write pip install scipy, or solver='search'"
        ) from error
    weight, row, column, coefficient, limit = program
    rows = csr_array((coefficient, (row, column)), (len(limit), len(weight)))
    return milp(
        -weight,
        integrality=np.full(len(weight), int(integral)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(rows, -np.inf, limit),
        options={"mip_rel_gap": 0.0, "presolve": False} | ({} if node_limit is None else {"node_limit": node_limit}),
    )


def _is_integral(weight: np.ndarray) -> bool:
    return bool((weight == weight.round()).all())


def _scale(weight: np.ndarray) -> float:
    # The solver's tolerances are absolute, at most 1e-6: negligible for integer weights; other weights are scaled up.
    return 1.0 if _is_integral(weight) else 1e4 / weight.max()


def _round_down(bound: float, weight: np.ndarray) -> float:
    return float(np.floor(bound + 1e-4)) if _is_integral(weight) else float(bound)
