"""Result types of all domains: `Estimate`, a number with its interval, and `Comparison`, a difference of two."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import register_pytree_node

from ... import _checks

MAX_LINES = 20  # of a printed result of several values
FEW_GROUPS = 10  # from which on a printed result no longer says how few there are
ResultType = TypeVar("ResultType", bound="Result")


class Result:
    """Base of `Estimate` and `Comparison`: a number, or several, with the ends of an interval.

    Immutable; unpacks into its number and both ends. A node of `torch.utils._pytree`, whose leaves are its tensors.
    """

    tensors: ClassVar[tuple[str, ...]]  # names of the fields that are tensors, the number first
    low: Tensor
    high: Tensor

    def __init_subclass__(cls) -> None:
        def flatten(result: Any) -> tuple[list[Any], Any]:
            return [getattr(result, name) for name in cls.tensors], result._context()

        def unflatten(leaves: Any, context: Any) -> Any:
            result = object.__new__(cls)
            for name, leaf in zip(cls.tensors, leaves, strict=True):
                object.__setattr__(result, name, leaf)
            for name, field in zip(cls._context_names(), context.fields, strict=True):
                object.__setattr__(result, name, field)
            return result

        register_pytree_node(cls, flatten, unflatten, serialized_type_name=f"tensormetrics.{cls.__name__}")

    @classmethod
    def _context_names(cls) -> list[str]:
        return [name for name in cls.__dataclass_fields__ if name not in cls.tensors]  # type: ignore[attr-defined]

    def _context(self) -> _Context:
        return _Context(tuple(getattr(self, name) for name in self._context_names()))

    def _number(self) -> Tensor:
        return getattr(self, self.tensors[0])

    def _map(self: ResultType, function: Callable[[Tensor], Tensor]) -> ResultType:
        mapped = {name: function(getattr(self, name)) for name in self.tensors}
        return dataclasses.replace(self, **mapped)  # type: ignore[type-var]

    def to(self: ResultType, *args: Any, **kwargs: Any) -> ResultType:
        """Move or cast all tensors; takes what `torch.Tensor.to` takes."""
        return self._map(lambda tensor: tensor.to(*args, **kwargs))

    def cpu(self: ResultType) -> ResultType:
        """Move all tensors to the CPU."""
        return self._map(torch.Tensor.cpu)

    def detach(self: ResultType) -> ResultType:
        """Detach all tensors from the graph of gradients."""
        return self._map(torch.Tensor.detach)

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self._number(), self.low, self.high))

    def __float__(self) -> float:
        return float(self._single())

    def _single(self) -> Tensor:
        number = self._number()
        if number.numel() != 1:
            raise TypeError(f"got {number.numel()} values, wanted one; write result[0] or result.{self.tensors[0]}")
        return number

    def __bool__(self) -> bool:
        kind = type(self).__name__
        raise TypeError(f"the truth of {kind} is ambiguous; compare .{self.tensors[0]}, .low or .high with a number")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._number().detach().cpu().numpy(), dtype=dtype)

    def _compared(self, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, Result):
            raise TypeError("two results: overlapping intervals are no test; write compare(a, b) of the metrics")
        if not isinstance(other, Tensor | int | float | np.number):
            return NotImplemented
        outcome = compare(self._number(), other)
        return bool(outcome) if outcome.ndim == 0 else outcome

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, torch.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, torch.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, torch.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, torch.ge)


@dataclasses.dataclass(frozen=True, eq=False)
class _Context:
    """What a result holds beside its tensors; equal to any other, because trees are compared by their structure."""

    fields: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context)

    def __hash__(self) -> int:
        return 0


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Estimate(Result):
    """A score and an interval that holds the true one in about `confidence` of data sets like this.

    Args:
        value: The observed score.
        low: Lower ends, at most `value`.
        high: Upper ends, at least `value`.
        confidence: Mass of the interval, in (0, 1).
        items: Items that were scored; None if unknown.
        groups: Independent units behind the items, equal to `items` without groups; None if unknown.
        effective_groups: Groups of equal size that would tell as much as these (Kish 1965); None if unknown.
        method: What made the interval, such as "bayesian bootstrap" or "posterior (hdi)".
        name: Name of the metric.
        labels: Names along the last dimension of `value`.
        details: Further results of single methods by name, such as "median".

    Shape:
        - value, low, high: ``(...)`` each, float64

    Example:
        >>> estimate = Estimate(torch.tensor(0.084), torch.tensor(0.061), torch.tensor(0.109))
        >>> value, low, high = estimate
        >>> print(estimate, float(estimate.high) > 0.1)
        0.084 [0.061, 0.109] True
    """

    tensors: ClassVar[tuple[str, ...]] = ("value", "low", "high")

    value: Tensor
    low: Tensor
    high: Tensor
    _: dataclasses.KW_ONLY
    confidence: float | None = None
    items: int | None = None
    groups: int | None = None
    effective_groups: float | None = None
    method: str | None = None
    name: str | None = None
    labels: tuple[str, ...] | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __getitem__(self, index: Any) -> Estimate:
        if self.value.ndim == 0:
            raise IndexError(f"index: got {index!r} for a single estimate; write .value, .low or .high")
        if isinstance(index, str):
            if index not in (self.labels or ()):
                raise KeyError(f"label: got {index!r}, wanted one of {self.labels}")
            index = (..., (self.labels or ()).index(index))
        part = self._map(lambda tensor: tensor[index])
        keeps_labels = self.labels is not None and part.value.shape[-1:] == self.value.shape[-1:]
        return part if keeps_labels else dataclasses.replace(part, labels=None)

    def __neg__(self) -> Estimate:
        return self * -1

    def __mul__(self, factor: float) -> Estimate:
        if isinstance(factor, bool) or not isinstance(factor, int | float):
            return NotImplemented
        value, low, high = (factor * end for end in self)
        return dataclasses.replace(self, value=value, low=torch.minimum(low, high), high=torch.maximum(low, high))

    __rmul__ = __mul__

    def __format__(self, spec: str) -> str:
        return _lines(self, lambda number, low, high: _with_interval(number, low, high, spec))

    def __str__(self) -> str:
        return format(self, "")

    def __repr__(self) -> str:
        return str(self) + _description(self)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """The difference a - b of two scores of the same items: interval, `p_better` and `p_value` are one statement.

    The interval excludes 0 exactly where `p_value` <= 1 - `confidence`, and `p_better` beyond .975 never stands beside
    a `p_value` above .1. `p_value` is the larger of the swap test's and the draws'.

    Args:
        difference: a - b.
        low: Lower ends of the interval of the difference.
        high: Upper ends.
        p_value: Two-sided; with U pairs that differ it cannot fall below 2^(1-U).
        p_better: Probability that a is better, ties half, in the metric's direction.
        p_rope: Probability that the difference lies within the region of practical equivalence; NaN without `rope`.
        confidence: Mass of the interval, in (0, 1).
        items: Items that were scored; None if unknown.
        groups: Independent units behind the items; None if unknown.
        effective_groups: Groups of equal size that would tell as much as these; None if unknown.
        discordant: Groups (or items) on which a and b differ; None if unknown.
        rope: Half the width of the region of practical equivalence; None without one.
        name: Name of the metric.
        labels: Names along the last dimension.
        details: Further results of single methods by name.

    Shape:
        - difference, low, high, p_value, p_better, p_rope: ``(...)`` each, float64
    """

    tensors: ClassVar[tuple[str, ...]] = ("difference", "low", "high", "p_value", "p_better", "p_rope")

    difference: Tensor
    low: Tensor
    high: Tensor
    p_value: Tensor
    p_better: Tensor
    p_rope: Tensor
    _: dataclasses.KW_ONLY
    confidence: float | None = None
    items: int | None = None
    groups: int | None = None
    effective_groups: float | None = None
    discordant: int | None = None
    rope: float | None = None
    name: str | None = None
    labels: tuple[str, ...] | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __format__(self, spec: str) -> str:
        p_values = iter(self.p_value.flatten().tolist())

        def line(number: float, low: float, high: float) -> str:
            return f"{_with_interval(number, low, high, spec, sign='+')}, p = {next(p_values):.3f}"

        return _lines(self, line)

    def __str__(self) -> str:
        return format(self, "")

    def __repr__(self) -> str:
        return str(self) + _description(self)


def _with_interval(number: float, low: float, high: float, spec: str, sign: str = "") -> str:
    numbers = number, low, high
    if not spec:
        is_invisible = any(numbers) and all(abs(x) < 0.0005 for x in numbers if math.isfinite(x))
        spec = ".3g" if is_invisible or any(1e6 <= abs(x) < math.inf for x in numbers) else ".3f"
    if sign and spec[0] in ".0123456789":
        spec = sign + spec
    number_text, low_text, high_text = (format(x, spec) for x in numbers)
    return f"{number_text} [{low_text}, {high_text}]"


def _lines(result: Any, line: Callable[[float, float, float], str]) -> str:
    rows = torch.stack([part.detach().double().cpu().flatten() for part in result], 1).tolist()
    if result.low.ndim == 0:
        return line(*rows[0])
    texts = [line(*row) for row in rows[:MAX_LINES]]
    if result.labels is not None and result.low.ndim == 1:
        width = max((len(label) for label in result.labels[:MAX_LINES]), default=0)
        texts = [f"{label:{width}}  {text}" for label, text in zip(result.labels, texts, strict=False)]
    if len(rows) > MAX_LINES:
        texts.append(f"... {len(rows) - MAX_LINES:,} more")
    return "\n".join(texts)


def _description(result: Any) -> str:
    parts = [] if result.confidence is None else [f"{100 * result.confidence:.4g} %"]
    if result.items is not None:
        is_grouped = result.groups is not None and result.groups != result.items
        parts.append(
            f"{result.items:,} items"
            + (f" in {result.groups:,} group{'s' * (result.groups != 1)}" if is_grouped else "")
        )
    if getattr(result, "method", None):
        parts.append(result.method)
    if result.groups is not None and result.groups < FEW_GROUPS:
        parts.append(f"only {result.groups} group{'s' * (result.groups != 1)}")
    return "".join(f", {part}" for part in parts)


def check_confidence(confidence: float) -> float:
    """Return a number in (0, 1) as a float, or raise a ValueError."""
    _checks.number("confidence", confidence, "a number between 0 and 1", lambda x: 0 < x < 1)
    return float(confidence)


def interval_of(samples: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    # samples: (R, ...)  ->  low (...), high (...)
    """Return the quantiles (1 -+ confidence) / 2, linear between samples.

    NaN are left out; the ends are NaN if over half of the samples are.
    """
    tails = samples.new_tensor([(1 - confidence) / 2, (1 + confidence) / 2])
    ordered = samples.sort(0).values  # NaN go last
    defined = samples.isnan().logical_not().sum(0, keepdim=True)
    position = tails.view(2, *[1] * (samples.ndim - 1)) * (defined - 1).clamp(min=0)
    below = position.floor().long()
    above = torch.minimum(below + 1, (defined - 1).clamp(min=0))
    low, high = ordered.gather(0, below), ordered.gather(0, above)
    ends = torch.where(low == high, low, low.lerp(high, position - below))  # infinite ends as well
    return tuple(ends.where(2 * defined[0] > len(samples), torch.nan))


def as_scalars(
    values: Mapping[str, Any], prefix: str = "", labels: Mapping[str, Sequence[str]] | None = None
) -> dict[str, float]:
    """Return what a logger takes: "acc", "acc/low", "acc/high"; indices stand between, as in "tpr/0" and "tpr/0/low".

    `values` has an `Estimate`, a `Comparison` ("acc" is the difference) or a tensor (...) by name. `labels` gives for
    some of them the names that the last index stands for: {"tpr": ["cat", "dog"]}.

        self.log_dict(as_scalars(metric.interval()))

    >>> accuracy = Estimate(torch.tensor(0.9), torch.tensor(0.75), torch.tensor(1.0))
    >>> as_scalars({"acc": accuracy, "tpr": torch.tensor([0.5, 0.25])}, labels={"tpr": ["cat", "dog"]})
    {'acc': 0.8999999761581421, 'acc/low': 0.75, 'acc/high': 1.0, 'tpr/cat': 0.5, 'tpr/dog': 0.25}
    """
    scalars = {}
    for name, result in values.items():
        names = (labels or {}).get(name) or getattr(result, "labels", None)
        tensors = {field: getattr(result, field) for field in getattr(result, "tensors", ())} or {"value": result}
        for number, (field, tensor) in enumerate(tensors.items()):
            for index, value in np.ndenumerate(torch.as_tensor(tensor).detach().cpu().numpy()):
                keys = [*index[:-1], names[index[-1]]] if names else index
                scalars[prefix + "/".join([name, *map(str, keys), *([field] if number else [])])] = float(value)
    return scalars
