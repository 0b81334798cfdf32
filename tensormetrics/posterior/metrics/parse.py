"""Metric strings: "name", "name+option=value", "name@averaging"; and lists of metrics."""

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from . import averaging as averaging  # registers the averagings
from . import classification as classification  # registers the metrics
from .quantity import ROOTS, Quantity, RootMetric, Values, compute_order, total
from .registry import AVERAGING_REGISTRY, METRIC_REGISTRY, NOTHING, Averaging, ConfusionMetric, closest, instance

NAMED_VALUES = {"true": True, "false": False, "none": None, "nan": math.nan}


class AveragedMetric(Quantity):
    """A metric with one value per class, averaged: "f1@macro".

    >>> metric = get_metric("tpr@macro")
    >>> isinstance(metric, AveragedMetric), metric(torch.tensor([[8, 2], [1, 9]]))
    (True, tensor([0.8500], dtype=torch.float64))
    """

    is_multiclass = True

    def __init__(self, base_metric: ConfusionMetric, averaging: Averaging) -> None:
        super().__init__()
        self.base_metric, self.averaging = base_metric, averaging
        self.name = f"{base_metric.name}@{averaging.name}"
        self.full_name = f"{base_metric.full_name} with {averaging.full_name}"
        self.aliases = [f"{metric}@{average}" for metric in base_metric.aliases for average in averaging.aliases]
        self.bounds, self.higher_is_better = base_metric.bounds, base_metric.higher_is_better
        self.sklearn_equivalent = base_metric.sklearn_equivalent
        self.parents = {"metric_values": base_metric}
        if averaging.pools_sums:
            self.parents = {leaf.name: leaf for leaf in compute_order([base_metric]) if not leaf.parents}
            if not self.parents.keys() <= {"tp", "fp", "fn", "tn"}:
                raise ValueError(
                    f"{base_metric.name!r} needs the cells of the confusion matrix, which {averaging.name!r} does not "
                    "have; write '@macro' or '@weighted'"
                )
        self.parents = {**self.parents, **averaging.parents}

    def bounds_of(self, num_classes: int) -> tuple[float, float]:
        return self.base_metric.bounds_of(num_classes)

    def evaluate(self, values: Values) -> Tensor:  # (rows, 1)
        arguments = {name: values[parent] for name, parent in self.averaging.parents.items()}
        if not self.averaging.pools_sums:
            return self.averaging(values[self.base_metric], **arguments)
        leaves = [leaf for leaf in self.parents.values() if not leaf.parents]
        pooled = Values({leaf: total(values[leaf]) / values.like.shape[1] for leaf in leaves}, values.like[:, :1])
        return self.averaging(pooled[self.base_metric], **arguments)


def get_metric(metric: str, zero_division: float | None = None) -> Quantity:
    """Return the metric that a string names: "acc", "fbeta+beta=2.0", "f1@macro", "tpr@binary+positive_class=0".

    Equal metrics are one object: `get_metric("acc") is get_metric("accuracy")`.

    Args:
        metric: Alias of a metric or a root quantity, after "@" one of an averaging; option values are Python literals,
            true, false, none and nan in any case, or else strings. Blanks do not count.
        zero_division: Value where the metric is undefined, as by 0 / 0: 0, 1 or nan, like the option of that name:
            "jaccard+zero_division=0@macro". None: 0 for f1, fbeta and p4, nan for all others.

    Returns:
        The metric, a function of confusion matrices (..., C, C) to (..., C), or (..., 1) for one value of all classes.

    Raises:
        ValueError: If a name or an option is unknown; the message has the closest aliases.

    >>> get_metric("fbeta+beta=2.0@macro")(torch.tensor([[90, 10], [12, 88]]))
    tensor([0.8900], dtype=torch.float64)
    """
    if not isinstance(metric, str) or not metric.strip() or metric.count("@") > 1:
        raise ValueError(
            f"metric: got {metric!r}, wanted 'name', 'name+option=value' or 'name@averaging', such as 'acc', "
            "'fbeta+beta=2.0' or 'f1@macro'"
        )
    name, separator, average = metric.partition("@")
    default = {} if zero_division is None else {"zero_division": zero_division}
    base = _find(metric, "metric", name, {**METRIC_REGISTRY, **ROOTS}, default)
    if not separator:
        return base
    averaging = _find(metric, "averaging", average, AVERAGING_REGISTRY)
    if isinstance(base, RootMetric):
        raise ValueError(
            f"metric {metric!r}: {name.strip()!r} is a root quantity, not a metric; leave out '@{average}'"
        )
    if base.is_multiclass:
        raise ValueError(f"metric {metric!r}: {name.strip()!r} is one number already; leave out '@{average}'")
    try:
        return instance(f"{base.name}@{averaging.name}", partial(AveragedMetric, base, averaging))
    except ValueError as error:
        raise ValueError(f"metric {metric!r}: {error}") from error


Quantity.find = staticmethod(get_metric)


def find_metric(metric: str | Quantity, zero_division: float | None) -> Quantity:
    """Return a metric, or the metric of a name, with `zero_division`."""
    if isinstance(metric, Quantity) and zero_division is None:
        return metric
    return get_metric(metric.name if isinstance(metric, Quantity) else metric, zero_division)


def _find(metric: str, kind: str, token: str, table: Mapping[str, Any], default: Mapping[str, Any] = NOTHING) -> Any:
    name, *options = (part.strip() for part in token.split("+"))
    if name not in table:
        suggestion = _suggestion(name) if kind == "metric" else ""
        advice = f"write {suggestion}" if suggestion else closest(name, table)
        raise ValueError(f"metric {metric!r}: there is no {kind} {name!r}; {advice}")
    values: dict[str, Any] = {}
    valid = getattr(table[name], "defaults", {})
    if unknown := sorted(default.keys() - valid):
        raise ValueError(f"metric {metric!r}: {name!r} has no option {unknown[0]!r}; ask for it without")
    for option in options:
        key, equals, value = (part.strip() for part in option.partition("="))
        if not equals:
            raise ValueError(
                f"metric {metric!r}: option {option!r} has no value; write '+option=value', and numbers without '+', "
                "such as 10.0 or 1e1"
            )
        if key not in valid:
            raise ValueError(f"metric {metric!r}: {name!r} has no option {key!r}; it has {', '.join(valid) or 'none'}")
        if key in values:
            raise ValueError(f"metric {metric!r}: option {key!r} is given twice")
        values[key] = _value(value)
    if name in ROOTS:
        return ROOTS[name]
    options = {**default, **values}
    try:
        return instance(table[name].name_with(options), partial(table[name], **options))
    except (TypeError, ValueError) as error:
        raise ValueError(f"metric {metric!r}: {error}") from error


def _suggestion(name: str) -> str:
    """Return the name here of "macro_f1", "f1macro", "F1-score" and the like; "" for others."""
    average = "|".join(map(re.escape, sorted(AVERAGING_REGISTRY, key=len, reverse=True)))
    parts = re.split(r"[\s_-]+", name.lower())
    tokens = [
        token for part in parts for token in (part in METRIC_REGISTRY and [part]) or re.split(f"({average})", part)
    ]
    averages = [token for token in tokens if token in AVERAGING_REGISTRY]
    rest = [token for token in tokens if token not in ("", "score", "average", "avg", *averages)]
    metric = next((name for name in ("_".join(rest), "".join(rest)) if name in METRIC_REGISTRY), None)
    if metric is None or len(averages) > 1:
        return ""
    if averages and not METRIC_REGISTRY[metric].is_multiclass:
        return repr(f"{metric}@{averages[0]}")
    return (
        repr(metric)
        if METRIC_REGISTRY[metric].is_multiclass
        else f"{metric + '@macro'!r}, or {metric!r} for each class"
    )


def _value(text: str) -> Any:
    if text.lower() in NAMED_VALUES:
        return NAMED_VALUES[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class ConfusionMetricCollection:
    """Metrics in the order of insertion, by the spelling they were given in: strings, metrics, or many of them.

    `zero_division` as in `get_metric`.

    >>> collection = ConfusionMetricCollection(["acc", "f1@macro"])
    >>> list(collection.items())[0][0], len(collection)
    ('acc', 2)
    """

    def __init__(
        self, metrics: "str | Quantity | Iterable | ConfusionMetricCollection" = (), zero_division: float | None = None
    ) -> None:
        self.zero_division = zero_division
        self._metrics: dict[str, Quantity] = {}
        self.add(metrics)

    def add(self, metrics: "str | Quantity | Iterable | ConfusionMetricCollection") -> None:
        if isinstance(metrics, str):
            self._metrics[metrics] = get_metric(metrics, self.zero_division)
        elif isinstance(metrics, Quantity):
            self._metrics[metrics.name] = find_metric(metrics, self.zero_division)
        elif isinstance(metrics, ConfusionMetricCollection):
            self._metrics |= {name: find_metric(metric, self.zero_division) for name, metric in metrics.items()}
        elif not isinstance(metrics, Iterable):
            raise TypeError(f"metrics: got {metrics!r:.60}, wanted a name such as 'acc', a metric, or a list of them")
        else:
            for metric in sorted(metrics, key=str) if isinstance(metrics, set | frozenset) else metrics:
                self.add(metric)

    def __getitem__(self, name: str) -> Quantity:
        """Return a metric of the collection by any of its names."""
        metric = self._metrics.get(name) or get_metric(name, self.zero_division)
        if metric not in self._metrics.values():
            raise KeyError(f"metric {name!r} is not in the collection, which has {', '.join(self._metrics) or 'none'}")
        return metric

    def __iter__(self) -> Iterator[Quantity]:
        return iter(self._metrics.values())

    def __len__(self) -> int:
        return len(self._metrics)

    def __repr__(self) -> str:
        return f"ConfusionMetricCollection({[*self._metrics]})"

    def items(self) -> Iterable[tuple[str, Quantity]]:
        """Return the names, as they were written, and the metrics."""
        return self._metrics.items()
