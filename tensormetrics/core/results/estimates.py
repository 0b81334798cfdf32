"""Result types of all domains: `Estimate`, a number with its interval, and `Comparison`, a difference of two."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import register_pytree_node

from ..arguments import checks
from .conclusions import Assurance, assurance_of, verdict_of
from .formatting import description, interval_text, label_texts, p_value_texts, result_lines, value_rows
from .plots import plot_values
from .text_tables import data_frame, rendered

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ResultType = TypeVar("ResultType", bound="Result")
OPPOSITE = {"two-sided": "two-sided", "greater": "less", "less": "greater"}


class Result:
    """Base of `Estimate` and `Comparison`: a number, or several, with the ends of an interval.

    Immutable; unpacks into its number and both ends. A node of `torch.utils._pytree`, whose leaves are its tensors.
    """

    tensors: ClassVar[tuple[str, ...]]  # names of the fields that are tensors, the number first
    optional: ClassVar[tuple[str, ...]] = ()  # names of the fields that are tensors or results, or None
    low: Tensor
    high: Tensor
    labels: tuple[str, ...] | None

    def __init_subclass__(cls) -> None:
        def flatten(result: Any) -> tuple[list[Any], Any]:
            names = [name for name in (*cls.tensors, *cls.optional) if getattr(result, name) is not None]
            context = {name: getattr(result, name) for name in _field_names(cls) if name not in names}
            return [getattr(result, name) for name in names], _Context((*names,), context)

        def unflatten(leaves: Any, context: Any) -> Any:
            result = object.__new__(cls)
            for name, field in (*zip(context.names, leaves, strict=True), *context.fields.items()):
                object.__setattr__(result, name, field)
            return result

        register_pytree_node(cls, flatten, unflatten, serialized_type_name=f"tensormetrics.{cls.__name__}")

    def _number(self) -> Tensor:
        return getattr(self, self.tensors[0])

    def _map(self: ResultType, function: Callable[[Tensor], Tensor]) -> ResultType:
        mapped: dict[str, Any] = {}
        for name in (*self.tensors, *self.optional):
            field = getattr(self, name)
            if isinstance(field, Result):
                mapped[name] = field._map(function)
            elif field is not None:
                mapped[name] = function(field)
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

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but `details` as Python numbers, texts, lists and dictionaries."""
        return {name: _to_python(getattr(self, name)) for name in _field_names(type(self)) if name != "details"}

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame of one row per value. ImportError names the extra that has pandas."""
        names = [name for name in (*self.tensors, "p_corrected") if isinstance(getattr(self, name, None), Tensor)]
        return data_frame(names, value_rows(self, (*names,)), label_texts(self), None)

    def plot(self, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Plot each number as a point with its interval as a bar.

        Args:
            ax: Axes to draw on; default those of a new figure.

        Returns:
            The figure and its axes.

        Raises:
            ImportError: Without matplotlib.
        """
        labels = label_texts(self)
        name = getattr(self, "name", None) or type(self).__name__
        parts = {label: self._map(lambda t, i=i: t.flatten()[i]) for i, label in enumerate(labels)}  # type: ignore[misc]
        return plot_values([parts if len(labels) > 1 else next(iter(parts.values()), self)], name, ax=ax)

    def _repr_html_(self) -> str:
        is_comparison = "p_value" in self.tensors
        headers = ["", self.tensors[0], *(["p"] if is_comparison else [])]
        rows = [
            [label, interval_text(*row, is_signed=is_comparison)]
            for label, row in zip(label_texts(self), value_rows(self), strict=True)
        ]
        if is_comparison:
            for row, text in zip(rows, p_value_texts(self), strict=True):
                row.append(text)
        return f"{rendered('html', headers, rows)}\n<p>{description(self)}</p>"

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self._number(), self.low, self.high))

    def __getitem__(self: ResultType, index: Any) -> ResultType:
        if self.low.ndim == 0:
            raise IndexError(f"index: got {index!r} for a single value; write .{self.tensors[0]}, .low or .high")
        if isinstance(index, str):
            if index not in (self.labels or ()):
                raise KeyError(f"label: got {index!r}, wanted one of {self.labels}")
            index = (..., (self.labels or ()).index(index))
        part = self._map(lambda tensor: tensor[index])
        keeps_labels = self.labels is not None and part.low.shape[-1:] == self.low.shape[-1:]
        return part if keeps_labels else dataclasses.replace(part, labels=None)  # type: ignore[type-var]

    def __float__(self) -> float:
        return float(self._single())

    def _single(self) -> Tensor:
        value = self._number()
        if value.numel() != 1:
            raise TypeError(f"got {value.numel()} values, wanted one; write result[0] or result.{self.tensors[0]}")
        return value

    def __bool__(self) -> bool:
        kind = type(self).__name__
        raise TypeError(f"the truth of {kind} is ambiguous; compare .{self.tensors[0]}, .low or .high with a number")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._number().detach().cpu().numpy(), dtype=dtype)

    def __format__(self, spec: str) -> str:
        return "\n".join(result_lines(self, spec))

    def __str__(self) -> str:
        return format(self, "")

    def __repr__(self) -> str:
        return ", ".join(filter(None, [str(self), description(self)]))

    def _compared(self, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, Result):
            raise TypeError("two results: overlapping intervals are no test; write compare(a, b) of the metrics")
        if not isinstance(other, Tensor | int | float | np.number):
            return NotImplemented
        outcome = compare(self._number(), other)
        return bool(outcome) if outcome.ndim == 0 else outcome

    def __eq__(self, other: object) -> Any:
        # With a number as `<` and `>`; another result is equal only if it is this one.
        return self is other if isinstance(other, Result) else self._compared(other, torch.eq)

    def __ne__(self, other: object) -> Any:
        return self is not other if isinstance(other, Result) else self._compared(other, torch.ne)

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, torch.lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, torch.le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, torch.gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, torch.ge)


def _field_names(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cast(Any, cls))]


def _to_python(field: Any) -> Any:
    if isinstance(field, Result):
        return field.to_dict()
    return field.tolist() if isinstance(field, Tensor) else list(field) if isinstance(field, tuple) else field


@dataclasses.dataclass(frozen=True, eq=False)
class _Context:
    """The names of a result's leaves and its other fields; equal to any other, because trees compare structures."""

    names: tuple[str, ...]
    fields: dict[str, Any]

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
        groups: Number of independent units of the items, equal to `items` without groups; estimated for metrics that
            keep sums of more than 1,000 units (`details` then has "groups_estimated"); None if unknown.
        effective_groups: Number of groups of equal size with the same information (Kish 1965); None if unknown.
        method: Method of the interval, such as "bayesian bootstrap" or "posterior (hdi)".
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

    def __neg__(self) -> Estimate:
        return self * -1

    def __mul__(self, factor: float) -> Estimate:
        if isinstance(factor, bool) or not isinstance(factor, Real):
            return NotImplemented
        value, low, high = (factor * end for end in self)
        return dataclasses.replace(self, value=value, low=torch.minimum(low, high), high=torch.maximum(low, high))

    __rmul__ = __mul__


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """The difference a - b of two scores of the same items: interval, `p_better` and `p_value` are one statement.

    The interval excludes 0 exactly where `p_value` <= 1 - `confidence`, and `p_better` > .975 never comes with a
    two-sided `p_value` above .1. In `compare`, `p_value` is the larger of the swap test's and the draws'.
    `100 * comparison` compares scores in percent; `-comparison` compares negated scores, of which less is better where
    more was.

    Args:
        difference: a - b.
        low: Lower ends of the interval of the difference.
        high: Upper ends.
        p_value: Two-sided, where U pairs that differ cannot fall below 2^(1-U), or that of the alternative.
        p_better: Probability that a is better, ties half, in the metric's direction; NaN with `anytime`.
        p_rope: Probability that the difference lies within the region of practical equivalence; NaN without `rope`.
        confidence: Mass of the interval, in (0, 1).
        alternative: ``"two-sided"``, ``"greater"`` (a is above b) or ``"less"``; of `p_value` and the interval, whose
            other end is that of the range.
        items: Items that were scored; None if unknown.
        groups: Number of independent units of the items, see `Estimate`; None if unknown.
        effective_groups: Number of groups of equal size with the same information; None if unknown.
        discordant: Groups (or items) on which a and b differ; None if unknown.
        test: Where `p_value` comes from: "paired swaps" (exact for differences of one size, as McNemar's test, and for
            few units), "exact binomial", "random signs", "corrected t", "hierarchical t" or "anytime"; "bootstrap" or
            "draws" without a separate test.
        p_corrected: p-values corrected over all comparisons of a call, as the interval is; None for a single one.
        p_not_worse: p-values of non-inferiority, that a is not worse than b by `rope` or more; None without `rope`.
            The larger one of a t test and of draws with an imagined item on which a is worst and b best.
        p_equivalent: p-values of equivalence, that the difference is smaller than `rope` on both sides (two one-sided
            tests, whose confidence interval is that of 1 - 2 p: at .05 that of 90 %); None without `rope`.
        se: Standard errors of the difference; None if unknown.
        sd: Standard deviations of the difference per group (or item), from which `plan` starts; None if unknown.
        a: Score of a with its interval; None if unknown.
        b: Score of b with its interval; None if unknown.
        higher_is_better: Direction of the metric.
        rope: Half the width of the region of practical equivalence; None without one.
        name: Name of the metric.
        labels: Names along the last dimension.
        details: Further results of single methods by name.

    Shape:
        - all tensors: ``(...)`` each, float64

    Example:
        >>> ends = torch.tensor(0.042), torch.tensor(0.056)
        >>> comparison = Comparison(torch.tensor(0.049), *ends, *map(torch.tensor, (0.001, 0.999, torch.nan)))
        >>> print(comparison, comparison.verdict, sep="; ")
        +0.049 [+0.042, +0.056], p = 0.001; better
    """

    tensors: ClassVar[tuple[str, ...]] = ("difference", "low", "high", "p_value", "p_better", "p_rope")
    optional: ClassVar[tuple[str, ...]] = ("p_corrected", "p_not_worse", "p_equivalent", "se", "sd", "a", "b")

    difference: Tensor
    low: Tensor
    high: Tensor
    p_value: Tensor
    p_better: Tensor
    p_rope: Tensor
    _: dataclasses.KW_ONLY
    confidence: float | None = None
    alternative: str = "two-sided"
    items: int | None = None
    groups: int | None = None
    effective_groups: float | None = None
    discordant: int | None = None
    test: str | None = None
    # Whether these are None depends on the call that made them: `Any` saves a check of it.
    p_corrected: Tensor | Any = None
    p_not_worse: Tensor | Any = None
    p_equivalent: Tensor | Any = None
    se: Tensor | Any = None
    sd: Tensor | Any = None
    a: Estimate | Any = None
    b: Estimate | Any = None
    higher_is_better: bool = True
    rope: float | None = None
    name: str | None = None
    labels: tuple[str, ...] | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> Any:
        """Return the conclusion of the interval as a text, or nested lists of texts for several values.

        "better" or "worse" if the interval excludes 0, with a `rope` also "better by more than rope", "worse by more
        than rope", "equivalent" (within it), "not worse" and "not better", else "undecided". "not worse" and
        "equivalent" also need their p-values at most 1 - `confidence`, and are stricter: a p-value of .05 belongs to
        the interval of 90 %.
        """
        names = ("low", "high") if self.higher_is_better else ("high", "low")
        rows = value_rows(self, names)
        sign, level = 1 if self.higher_is_better else -1, 1 - (self.confidence or 0.95)
        p_values = [[0.0, 0.0]] * len(rows)
        if self.p_not_worse is not None and self.p_equivalent is not None:
            p_values = value_rows(self, ("p_not_worse", "p_equivalent"))
        verdicts = [
            verdict_of(sign * low, sign * high, self.rope, p_not_worse, p_equivalent, level)
            for (low, high), (p_not_worse, p_equivalent) in zip(rows, p_values, strict=True)
        ]
        return np.array(verdicts, dtype=object).reshape(self.low.shape).tolist()

    @property
    def _decisive_p(self) -> Tensor:
        return self.p_value if self.p_corrected is None else self.p_corrected

    @property
    def _is_significant(self) -> bool:
        return float(self._decisive_p) <= 1 - (self.confidence or 0.95)

    def __neg__(self) -> Comparison:
        return self * -1

    def __mul__(self, factor: float) -> Comparison:
        if isinstance(factor, bool) or not isinstance(factor, Real):
            return NotImplemented
        checks.check_number("factor", factor, "a finite number other than 0", lambda x: x != 0 and math.isfinite(x))
        ends = (self.low, self.high) if factor > 0 else (self.high, self.low)
        fields = {"difference": self.difference, "a": self.a, "b": self.b} | dict(
            zip(("low", "high"), ends, strict=True)
        )
        spreads = {"se": self.se, "sd": self.sd, "rope": self.rope}
        scaled = {name: None if field is None else factor * field for name, field in fields.items()}
        scaled |= {name: None if field is None else abs(factor) * field for name, field in spreads.items()}
        if factor < 0:
            scaled |= {"higher_is_better": not self.higher_is_better, "alternative": OPPOSITE[self.alternative]}
        return dataclasses.replace(self, **cast(Any, scaled))

    __rmul__ = __mul__

    def assurance(self, more: int) -> Assurance:
        """Return how likely `more` items like those of the data make the interval exclude 0; for 0, whether it does.

        The predictive law of the larger sample, in which today's difference is not the true one (Spiegelhalter,
        Freedman & Blackburn 1986, doi:10.1016/0197-2456(86)90003-6).

        Args:
            more: Number of items that are added.

        Shape:
            - Output: ``(...)`` each, float64

        Returns:
            The chances that a turns out better and worse than b.

        Raises:
            ValueError: If the number is negative, or standard error, items or confidence of the comparison are unknown.
        """
        more = checks.check_int("more", more, 0)
        if self.se is None or self.items is None or self.confidence is None:
            raise ValueError(
                "assurance: got a comparison without se, items and confidence, wanted one of compare(a, b)"
            )
        below = (1 + self.confidence) / 2 if self.alternative == "two-sided" else self.confidence
        z = float(torch.special.ndtri(torch.tensor(below, dtype=torch.float64, device="cpu")))
        chances = assurance_of(self.difference, self.low, self.high, more / self.items, z)
        return chances if self.higher_is_better else Assurance(*reversed(chances))


def check_confidence(confidence: float) -> float:
    """Return a number in (0, 1) as a float, or raise a ValueError."""
    checks.check_number("confidence", confidence, "a number between 0 and 1", lambda x: 0 < x < 1)
    return float(confidence)


def as_scalars(
    values: Mapping[str, Any] | Result, prefix: str = "", labels: Mapping[str, Sequence[str]] | None = None
) -> dict[str, float]:
    """Return a flat dictionary for a logger: "acc", "acc/low", "acc/high", with indices as in "tpr/0" and "tpr/0/low".

    `values` has an `Estimate`, a `Comparison` ("acc" is the difference) or a tensor (...) by name, or is one of the
    former two, with its own name or else "value". `labels` replaces the last index of some values by names:
    {"tpr": ["cat", "dog"]}.

        self.log_dict(as_scalars(metric.interval()))

    >>> accuracy = Estimate(torch.tensor(0.9), torch.tensor(0.75), torch.tensor(1.0))
    >>> as_scalars({"acc": accuracy, "tpr": torch.tensor([0.5, 0.25])}, labels={"tpr": ["cat", "dog"]})
    {'acc': 0.8999999761581421, 'acc/low': 0.75, 'acc/high': 1.0, 'tpr/cat': 0.5, 'tpr/dog': 0.25}
    """
    scalars = {}
    if isinstance(values, Result):
        values = {getattr(values, "name", None) or "value": values}
    for name, result in values.items():
        names = (labels or {}).get(name) or getattr(result, "labels", None)
        tensors = {field: getattr(result, field) for field in getattr(result, "tensors", ())} or {"value": result}
        for position, (field, tensor) in enumerate(tensors.items()):
            for index, value in np.ndenumerate(torch.as_tensor(tensor).detach().cpu().numpy()):
                keys = [*index[:-1], names[index[-1]]] if names else index
                scalars[prefix + "/".join([name, *map(str, keys), *([field] if position else [])])] = float(value)
    return scalars
