"""Quantities that are computed from confusion matrices, in order: each once, its parents first."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ..sampling.confusion_sums import normalize_counts, sums_from_matrices


class Values(dict):
    """Quantity -> its values for many matrices at once (rows, ...), computed on first access."""

    def __init__(self, values: "Mapping[Quantity, Tensor]", like: Tensor) -> None:
        super().__init__(values)
        self.like = like  # (rows, C): gives dtype, device and shape

    def __missing__(self, quantity: "Quantity") -> Tensor:
        self[quantity] = quantity.evaluate(self)
        return self[quantity]


class Quantity(torch.nn.Module, ABC):
    """Base of quantities of confusion matrices; `metric(matrices)` returns their point values.

    `name` is canonical, and `parents` are the quantities it is computed from, by the name of the argument.
    """

    name: str
    parents: Mapping[str, "Quantity"]
    full_name: str
    is_multiclass: bool
    bounds: tuple[float, float]
    higher_is_better: bool | None
    find: ClassVar[Callable[[str], "Quantity"]]  # `get_metric`: the file that reads names sets it

    @abstractmethod
    def evaluate(self, values: Values) -> Tensor:  # (rows, ...)
        """Compute the values from those of the parents."""

    def bounds_of(self, num_classes: int) -> tuple[float, float]:
        """Return the bounds for a number of classes."""
        return self.bounds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).find, (self.name,)  # copies and pickles are the one object of that name

    def extra_repr(self) -> str:
        return repr(self.name)

    @takes_arrays
    def forward(self, matrices: Tensor) -> Tensor:
        """Compute point values in float64; nan for a matrix whose total is 0 or not finite.

        Shapes: matrices: (..., C, C) counts >= 0, rows are the truth -> (..., C), or (..., 1) for one value per matrix.
        """
        checks.shape("matrices", matrices, "...", "C", "C")
        if matrices.shape[-2] != matrices.shape[-1] or matrices.shape[-1] < 2:
            raise ValueError(f"matrices: got shape {tuple(matrices.shape)}, wanted (..., C, C) with C >= 2")
        values = observed_values(matrices.reshape(-1, *matrices.shape[-2:]))[self]
        return values.reshape(*matrices.shape[:-2], *values.shape[1:])


class RootMetric(Quantity):
    """A quantity that metrics are made of. It can be sampled but is no metric: it has no bounds and no report.

    >>> RootMetric("diag_mass").name
    'diag_mass'
    """

    def __init__(self, name: str, formula: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        self.name, self.formula = name, formula
        arguments = inspect.signature(formula).parameters if formula else ()
        self.parents = {argument: ROOTS[argument] for argument in arguments}

    def evaluate(self, values: Values) -> Tensor:
        assert self.formula is not None  # a quantity without one is known from the beginning
        return self.formula(*(values[parent] for parent in self.parents.values()))

    def _is_no_metric(self) -> Any:
        raise TypeError(f"{self.name!r} is a root quantity, not a metric: it can be sampled but not reported")

    is_multiclass: Any = property(_is_no_metric)
    bounds: Any = property(_is_no_metric)
    sklearn_equivalent = property(_is_no_metric)


class LinearForm(Quantity):
    """sum_ij w_ij C_ij of the matrix C; `weights` gives w (C, C) for a number of classes."""

    def __init__(self, weights: Callable[[int], Tensor]) -> None:
        super().__init__()
        self.name, self.weights = "cost", weights
        self.parents = {}  # the sampler adds it up without the matrix

    def evaluate(self, values: Values) -> Tensor:  # (rows, 1)
        cells = values[ROOTS["norm_confusion_matrix"]]
        return (cells * self.weights(cells.shape[-1]).to(cells)).sum((-2, -1))[:, None]


def total(x: Tensor) -> Tensor:  # (..., C) -> (..., 1)
    """Sum over classes in pairs: bits do not depend on the layout, the device and the number of rows."""
    while (half := x.shape[-1] // 2) > 0:
        x, odd = x[..., :half] + x[..., half : 2 * half], x[..., 2 * half :]
        x[..., : odd.shape[-1]].add_(odd)
    return x


ROOTS: dict[str, RootMetric] = {}
for _name, _formula in {
    "tp": None,  # (rows, C), as are the sums below
    "fp": None,
    "fn": None,
    "tn": None,
    "p_condition": lambda tp, fn: tp + fn,
    "p_pred": lambda tp, fp: tp + fp,
    "norm_confusion_matrix": None,  # (rows, C, C), as are the conditionals
    "p_pred_given_condition": lambda norm_confusion_matrix: norm_confusion_matrix / total(norm_confusion_matrix),
    "p_condition_given_pred": lambda norm_confusion_matrix: norm_confusion_matrix / total(norm_confusion_matrix.mT).mT,
}.items():
    ROOTS[_name] = RootMetric(_name, _formula)


def compute_order(quantities: Iterable[Quantity]) -> list[Quantity]:
    """Return the quantities and all that they depend on, parents first, each once."""
    order: dict[Quantity, None] = {}

    def visit(quantity: Quantity) -> None:
        if quantity not in order:
            for parent in quantity.parents.values():
                visit(parent)
            order[quantity] = None

    for quantity in quantities:
        visit(quantity)
    return list(order)


def observed_values(matrices: Tensor) -> Values:  # (rows, C, C)
    """Return the values of quantities at the matrices themselves, in float64."""
    sums = sums_from_matrices(matrices)
    values: dict[Quantity, Tensor] = {ROOTS[name]: getattr(sums, name) for name in ("tp", "fp", "fn", "tn")}
    values[ROOTS["norm_confusion_matrix"]] = normalize_counts(matrices)
    return Values(values, sums.tp)
