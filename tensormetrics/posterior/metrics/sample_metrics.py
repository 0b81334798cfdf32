"""Samples of metrics, drawn in parts so that the matrices are never all there."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ..sampling.confusion_sums import (
    METHODS,
    ConfusionSums,
    Method,
    sample_confusion_matrices,
    sample_sums,
    sums_from_matrices,
)
from ..sampling.dirichlet import DTYPES, is_hierarchical, prior_on_device
from ..sampling.paired import PairedItems, sample_paired_matrices
from .parse import ConfusionMetricCollection
from .quantity import ROOTS, LinearForm, Quantity, Values, compute_order, observed_values

VANISHING = 0.2  # of a smaller concentration a, float32 holds no share with chance exp(-87 a)
TINY = 1e-36  # shares that float32 rounds to few digits or to 0


@takes_arrays
def sample_metrics(
    counts: Tensor,
    metrics: str | Quantity | Iterable[str | Quantity],
    replicates: int,
    *,
    method: Method = "posterior",
    start: int = 0,
    dtype: torch.dtype = torch.float32,
    memory_limit: int = 2**26,
    items: PairedItems | None = None,
    **draws: Any,
) -> list[Tensor]:
    """Draw S = `replicates` values of each metric for each matrix of `counts`, in the order of `metrics`.

    Shapes: counts: (E, C, C), or (C, C) for E = 1 -> (S, E, C) or (S, E, 1) for each metric.

    `draws` are the priors, `seed` and `names` of `sample_sums`, which also explains `method`, `start` and `dtype`.
    Only what the metrics need is drawn: O(C) variates per sample where the diagonal suffices, and matrices (C, C) only
    for metrics that depend on a root of that shape. Scratch memory stays near `memory_limit` bytes, or what one sample
    takes; neither it nor the other metrics change a value. Equal metrics share one tensor.
    Where shares of a class are too small for float32, as those of classes never seen, samples are those of float64.
    `items`, which `counts` count, make the posterior one with that of other experiments: see `sample_paired_matrices`.

    >>> counts = torch.tensor([[90, 10], [12, 88]])
    >>> accuracy, f1 = sample_metrics(counts, ["acc", "f1"], 1000)
    >>> accuracy.shape, f1.shape
    (torch.Size([1000, 1, 1]), torch.Size([1000, 1, 2]))
    >>> round(float(accuracy.median()), 2)
    0.89
    """
    checks.check_choice("method", method, METHODS)
    replicates = checks.check_int("replicates", replicates, 0)
    start = checks.check_int("start", start, 0)
    checks.check_choice("dtype", dtype, DTYPES)
    collection = ConfusionMetricCollection(metrics)
    checks.tensor("counts", counts)
    counts = counts[None] if counts.ndim == 2 else counts
    checks.shape("counts", counts, "E", "C", "C")
    if method == "input":
        values = observed_values(counts)
        return [values[metric][None] for metric in collection]
    E, C, _ = counts.shape
    order = compute_order(collection)
    forms = [quantity for quantity in order if isinstance(quantity, LinearForm)]
    weights = torch.stack([linear_form.weights(C) for linear_form in forms]).to(counts.device) if forms else None
    need = "weighted" if forms else "margins" if {ROOTS["fp"], ROOTS["tn"]} & set(order) else "diag"
    cells = ROOTS["norm_confusion_matrix"]
    paired = items if method == "posterior" else None

    def draw(dtype: torch.dtype, **options: Any) -> Values:  # of s * E rows
        if paired is not None:
            matrices = sample_paired_matrices(paired, C, dtype=torch.float64, **options, **draws)
            return _values_of_draws(sums_from_matrices(matrices, weights), matrices, forms, dtype)
        options = {**options, **draws, "method": method, "dtype": dtype}
        matrices = sample_confusion_matrices(counts, **options) if cells in order else None
        return _values_of_draws(sample_sums(counts, need=need, weights=weights, **options), matrices, forms, dtype)

    # Memory of a sample: the values of every quantity, and a few more while one is computed.
    needs_matrices = paired is not None or (need != "diag" and is_hierarchical(draws.get("confusion_prior")))
    size = E * C * dtype.itemsize * (20 * C if needs_matrices else 4 * C if cells in order else len(order) + 4)
    step = max(1, memory_limit // max(1, size))
    can_vanish = dtype == torch.float32 and _smallest_concentration(C, **draws) < VANISHING
    out: dict[Quantity, Tensor] = {}  # (E, C, S) or (E, 1, S)
    for first in range(0, max(1, replicates), step):
        part = slice(first, min(first + step, replicates))
        options = {"replicates": part.stop - first, "start": start + first}
        values = draw(dtype, **options)
        if can_vanish and (is_lost := _lost_classes(values)).any():
            precise = draw(torch.float64, **options)
            values |= {metric: _restored(values[metric], precise[metric].to(dtype), is_lost) for metric in collection}
        for metric in dict.fromkeys(collection):
            chunk = values[metric].unflatten(0, (part.stop - first, E))
            if metric not in out:
                out[metric] = chunk.new_empty(*chunk.shape[1:], replicates)
            out[metric][..., part] = chunk.movedim(0, -1)
    return [out[metric].movedim(-1, 0) for metric in collection]


def _values_of_draws(
    sums: ConfusionSums, matrices: Tensor | None, forms: list[LinearForm], dtype: torch.dtype
) -> Values:  # of s * E rows
    draws: dict[Quantity, Tensor | None] = {ROOTS[name]: x for name, x in sums._asdict().items() if name in ROOTS}
    draws[ROOTS["norm_confusion_matrix"]] = matrices
    if sums.weighted is not None:
        draws |= {quantity: sums.weighted[..., w, None] for w, quantity in enumerate(forms)}
    rows = {quantity: x.flatten(0, 1).to(dtype) for quantity, x in draws.items() if x is not None}
    return Values(rows, rows[ROOTS["tp"]])


def _smallest_concentration(
    C: int, prevalence_prior: Any = "perks", confusion_prior: Any = "balanced", **_: Any
) -> float:
    """Return the smallest concentration that the priors give a class to be true, or to be predicted."""
    cpu = torch.empty(0, dtype=torch.float64, device="cpu")
    confusion_prior = "balanced" if is_hierarchical(confusion_prior) else confusion_prior
    prevalence = prior_on_device(cpu, prevalence_prior, (C,), "prevalence_prior")
    predicted = prior_on_device(cpu, confusion_prior, (C, C), "confusion_prior").sum(-2)
    return min(float(prevalence.min()), float(predicted.min()))


def _lost_classes(values: Values) -> Tensor:  # (rows, C) bool
    tp, fn = (values[ROOTS[name]] < TINY for name in ("tp", "fn"))
    return tp & (fn | (values[ROOTS["fp"]] < TINY) if ROOTS["fp"] in values else fn)


def _restored(drawn: Tensor, precise: Tensor, is_lost: Tensor) -> Tensor:
    # drawn, precise: (rows, ...)  is_lost: (rows, C)  ->  drawn, but where classes without mass made it another number
    if drawn.shape != is_lost.shape:
        is_lost = is_lost.any(-1).reshape(-1, *[1] * (drawn.ndim - 1))
    return torch.where(is_lost & ~torch.isclose(drawn, precise, 1e-4, equal_nan=True), precise, drawn)
