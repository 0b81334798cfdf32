"""From one value per class to one value: (rows, C) -> (rows, 1)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .quantity import total
from .registry import Averaging


class AverageRow(NamedTuple):
    aliases: tuple[str, ...]  # the first is canonical
    full_name: str
    formula: Callable[..., Tensor]  # of the values, then what it depends on (..., C) each; keywords are options
    sklearn_equivalent: str | None = None
    pools_sums: bool = False


def _mean(x: Tensor, skip_nan: bool) -> Tensor:
    if skip_nan:
        is_defined = ~x.isnan()
        return total(torch.where(is_defined, x, 0)) / total(is_defined.to(x))
    return total(x) / x.shape[-1]


def _weighted(values: Tensor, p_condition: Tensor) -> Tensor:
    """Return the mean weighted by prevalence; a class of prevalence 0 is ignored, even if its value is undefined."""
    return total(torch.where(p_condition == 0, 0, p_condition * values)) / total(p_condition)


def _select(values: Tensor, *, positive_class: int = -1) -> Tensor:
    C = values.shape[-1]
    if not -C <= positive_class < C:
        raise ValueError(f"positive_class: got {positive_class}, wanted {-C} to {C - 1} for {C} classes")
    return values[..., positive_class, None]


def _unless_negative(values: Tensor, average: Tensor) -> Tensor:
    return average.masked_fill((values < 0).any(-1, keepdim=True), torch.nan)


def _harmonic(values: Tensor, *, skip_nan: bool = False) -> Tensor:
    return _unless_negative(values, 1 / _mean(1 / values.abs(), skip_nan))


def _geometric(values: Tensor, *, skip_nan: bool = False) -> Tensor:
    return _unless_negative(values, _mean(values.abs().log(), skip_nan).exp())


def _maximum(values: Tensor, *, skip_nan: bool = False) -> Tensor:
    if skip_nan:
        undefined = values.isnan().all(-1, keepdim=True)
        return (
            values.nan_to_num(-torch.inf, torch.inf, -torch.inf)
            .amax(-1, keepdim=True)
            .masked_fill(undefined, torch.nan)
        )
    return values.amax(-1, keepdim=True)


def _minimum(values: Tensor, *, skip_nan: bool = False) -> Tensor:
    return -_maximum(-values, skip_nan=skip_nan)


AVERAGINGS = (
    AverageRow(
        ("macro", "macro_average", "mean"),
        "Macro Averaging",
        lambda values, *, skip_nan=False: _mean(values, skip_nan),
        "macro",
    ),
    AverageRow(("weighted", "weighted_average"), "Class Prevalence Weighted Averaging", _weighted, "weighted"),
    AverageRow(("micro", "micro_average"), "Micro Averaging", lambda values: values, "micro", pools_sums=True),
    AverageRow(("select_positive", "binary", "select"), "Select Positive Class", _select, "binary"),
    AverageRow(("harmonic", "harm"), "Harmonic Mean Averaging", _harmonic),
    AverageRow(("geometric", "geom"), "Geometric Mean Averaging", _geometric),
    AverageRow(("min", "minimum"), "Minimum", _minimum),
    AverageRow(("max", "maximum"), "Maximum", _maximum),
)


class TableAveraging(Averaging):
    """An averaging that a row of `AVERAGINGS` describes."""

    row: AverageRow

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.compute_average = functools.partial(self.row.formula, **self.checked(options))

    def forward(self, metric_values: Tensor, **dependencies: Tensor) -> Tensor:  # (rows, C) -> (rows, 1)
        return self.compute_average(metric_values, **dependencies)


for _row in AVERAGINGS:
    TableAveraging.of_row(_row, 1, sklearn_equivalent=_row.sklearn_equivalent, pools_sums=_row.pools_sums)
