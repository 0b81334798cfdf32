"""0/1 selections of largest weight under linear constraints, for metrics whose best matching is NP-hard."""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ...core.arguments import checks

PROOF = 1e-9  # relative gap between value and bound below which they count as equal, unless weights are integers


class SolverResult(NamedTuple):
    """Largest value that was found, and an upper bound of the optimum. `exact`: both are proved to be equal."""

    value: Tensor  # (...) float64
    bound: Tensor  # (...) float64
    exact: Tensor  # (...) bool


class IntegerProgram(NamedTuple):
    """Maximize weight @ selected subject to A @ selected <= limit, where A[row[e], column[e]] = coefficient[e].

    C columns, L constraints, E nonzero coefficients.
    """

    weight: np.ndarray  # (C,) >= 0
    row: np.ndarray  # (E,)
    column: np.ndarray  # (E,)
    coefficient: np.ndarray  # (E,)
    limit: np.ndarray  # (L,)


class ProgramAnswer(NamedTuple):
    """Selection that a solver found, and an upper bound of the weight of any selection."""

    selected: np.ndarray  # (C,) 0 or 1, fractions from `relax`; all 0 if none was found
    bound: float


def check_solver(solver: str, node_limit: int) -> int | None:
    """Return the checked node limit; None for "exact", which has no limit, and "search", which solves no program."""
    checks.check_choice("solver", solver, ("auto", "exact", "search"))
    limit = checks.check_int("node_limit", node_limit, 0)
    return limit if solver == "auto" else None


def relax(program: IntegerProgram) -> ProgramAnswer:
    """Solve the linear relaxation, which may select fractions of columns."""
    scale = _scale(program.weight)
    result = _milp(program._replace(weight=scale * program.weight), integral=False)
    if result.x is None:
        return ProgramAnswer(np.zeros(len(program.weight)), program.weight.sum())
    return ProgramAnswer(result.x, _tightened(-result.fun / scale, program.weight))


def solve(program: IntegerProgram, value: float, node_limit: int | None) -> ProgramAnswer:
    """Search for a selection that is heavier than a known one of weight `value`.

    The bound is the weight of the best selection; if the search stopped after `node_limit` nodes, an upper bound of it.
    """
    weight, limit, scale = program.weight, program.limit, _scale(program.weight)
    # For other weights the known selection stays feasible: the solver's tolerance must not make the program infeasible.
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
        return ProgramAnswer(np.zeros(len(weight)), value)
    selected = np.zeros(len(weight)) if result.x is None else result.x.round()
    if result.status == SOLVED:
        return ProgramAnswer(selected, float(weight @ selected))
    has_bound = result.status == OUT_OF_NODES and result.mip_dual_bound is not None
    upper_bound = -result.mip_dual_bound / scale if has_bound else weight.sum()
    return ProgramAnswer(selected, max(value, _tightened(upper_bound, weight)))


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
    # The solver's tolerances are absolute, at most 1e-6, which is negligible for integer weights. Others are scaled to
    # a largest weight of 1e4, where 1e-6 is a relative error of 1e-10.
    return 1.0 if _is_integral(weight) else 1e4 / weight.max()


def _tightened(bound: float, weight: np.ndarray) -> float:
    # A sum of integer weights is an integer; 1e-4 covers the solver's error, so that 2.99999 becomes 3.
    return float(np.floor(bound + 1e-4)) if _is_integral(weight) else float(bound)
