"""The base classes of metrics, averagings and aggregators. Defining a subclass registers it under its aliases."""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.repr import RecordedArguments
from ..sampling.arrays import as_array, conform, without_subclass
from ..sampling.rng import RNG
from .quantity import ROOTS, Quantity, Values

METRIC_REGISTRY: dict[str, type["ConfusionMetric"]] = {}
AVERAGING_REGISTRY: dict[str, type["Averaging"]] = {}
AGGREGATION_REGISTRY: dict[str, type["ExperimentAggregator"]] = {}
NOTHING: Mapping[str, Any] = {}
INSTANCES: dict[str, Any] = {}  # canonical name -> the one metric or averaging of that name


class Registered(torch.nn.Module):
    """Base of what users write: defining a subclass that has its `method` registers it under its aliases."""

    registry: ClassVar[dict[str, Any]]
    tables: ClassVar[tuple[Mapping[str, Any], ...]]  # in which its aliases may not be
    method: ClassVar[str] = ""
    required: ClassVar[tuple[str, ...]]  # class attributes
    full_name: str
    aliases: list[str]
    defaults: Mapping[str, Any]  # the options and what they are when not given

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, cls.method):
            return
        if missing := [name for name in cls.required if not hasattr(cls, name)]:
            raise TypeError(f"{cls.__name__} lacks {', '.join(missing)}; define them as class attributes")
        check_aliases(cls)
        cls._check_arguments(_positional(cls, cls.method))
        if "defaults" not in vars(cls):
            cls.defaults = _options(cls)
        cls.registry.update(dict.fromkeys(cls.aliases, cls))

    @classmethod
    def _check_arguments(cls, names: list[str]) -> None:
        """Raise a TypeError unless the method takes the right arguments."""

    @classmethod
    def checked(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a built-in class, those that are not given by their defaults."""
        return {name: check_option(name, options.get(name, value), value) for name, value in cls.defaults.items()}

    @classmethod
    def of_row(cls, row: Any, leading: int = 0, *, options: Mapping[str, Any] = NOTHING, **attributes: Any) -> type:
        """Define the class of a row of a table: dependencies and options are arguments of the row's formula."""
        parameters = list(inspect.signature(row.formula).parameters.values())[leading:]
        name = "".join(part[:1].upper() + part[1:] for part in re.split("[- ]", row.full_name.replace("'", "")))
        described = {
            "row": row,
            "full_name": row.full_name,
            "aliases": list(row.aliases),
            "dependencies": tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD),
            "defaults": {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY} | dict(options),
            "leading": leading,
            cls.method: staticmethod(row.formula),
        }
        return type(name, (cls,), {"__module__": cls.__module__, **described, **attributes})


class Extension(Registered):
    """Base of metrics and averagings, with a canonical name: the first alias and the options."""

    tables = METRIC_REGISTRY, AVERAGING_REGISTRY, ROOTS
    required: ClassVar[tuple[str, ...]] = ("full_name", "dependencies", "sklearn_equivalent", "aliases")
    name: str
    dependencies: tuple[str, ...]
    sklearn_equivalent: str | None
    leading = 0  # how many arguments the method takes before the dependencies
    parents: Mapping[str, Quantity]

    def __new__(cls, *args: Any, **options: Any) -> "Extension":
        # The `__init__` of a user's class does not hand its options on, so the name is made before it runs.
        self = super().__new__(cls)
        self.name = cls.name_with({**dict(zip(cls.defaults, args, strict=False)), **options})
        return self

    def extra_repr(self) -> str:
        return repr(self.name)

    @classmethod
    def name_with(cls, options: Mapping[str, Any]) -> str:
        """Return the first alias and the options that differ from their defaults, sorted: "fbeta+beta=2.0"."""
        values = {key: _like(value, cls.defaults.get(key)) for key, value in sorted(options.items())}
        texts = [f"{key}={value!r}" for key, value in values.items() if repr(value) != repr(cls.defaults.get(key))]
        return "+".join([cls.aliases[0], *texts])

    @classmethod
    def _check_arguments(cls, names: list[str]) -> None:
        if sorted(names := names[cls.leading :]) != sorted(cls.dependencies):
            raise TypeError(
                f"{cls.__name__}.{cls.method} takes {sorted(names)} but dependencies are {sorted(cls.dependencies)}; "
                "name the same in both"
            )
        cls.parents = {name: _default(cls, name) for name in cls.dependencies}


class ConfusionMetric(Extension, Quantity):
    """Base class of metrics of a confusion matrix.

    Class attributes: `full_name`; `is_multiclass`, one value for all classes instead of one each;
    `bounds`; `dependencies`, root quantities or metrics; `sklearn_equivalent`; `aliases`; and `higher_is_better`.

    `compute_metric` takes the dependencies by name, (rows, C) or (rows, 1) each, on which numpy functions work like
    torch's, and returns (rows, C), or with `is_multiclass` (rows, 1) or (rows,). Row i may depend on rows i alone.
    Options are keyword arguments of a constructor that calls `super().__init__()` first.

    >>> with temporary_registrations():
    ...     class Mean(ConfusionMetric):
    ...         full_name, aliases, sklearn_equivalent = "Mean of precision and recall", ["mpr"], None
    ...         bounds, is_multiclass, dependencies = (0.0, 1.0), False, ("ppv", "tpr")
    ...
    ...         def compute_metric(self, ppv, tpr):  # (rows, C) each
    ...             return (ppv + tpr) / 2
    ...     value = get_metric("mpr")(torch.tensor([[8, 2], [2, 8]]))
    >>> value
    tensor([0.8000, 0.8000], dtype=torch.float64)
    """

    is_multiclass: bool
    bounds: tuple[float, float]
    higher_is_better: bool | None = True
    registry, method = METRIC_REGISTRY, "compute_metric"
    required = *Extension.required, "is_multiclass", "bounds"
    compute_metric: Callable[..., Any]

    def evaluate(self, values: Values) -> Tensor:  # (rows, C) or (rows, 1)
        arguments = {name: as_array(values[parent].contiguous()) for name, parent in self.parents.items()}
        like = values.like[:, :1] if self.is_multiclass else values.like
        return conform(f"{type(self).__name__}.compute_metric", self.compute_metric(**arguments), like)


class Averaging(Extension):
    """Base class of averagings, which combine the values of all classes.

    Class attributes: `full_name`, `dependencies`,
    `sklearn_equivalent`, `aliases`.

    `compute_average` takes the values (rows, C), then the dependencies by name, and returns (rows,) or (rows, 1).
    Options and numpy functions as in those of metrics. With `pools_sums` it is given the metric of the pooled sums
    (rows, 1).

    >>> with temporary_registrations():
    ...     class Median(Averaging):
    ...         full_name, aliases, sklearn_equivalent, dependencies = "Median over classes", ["median"], None, ()
    ...
    ...         def compute_average(self, metric_values):
    ...             return metric_values.median(-1).values
    ...     value = get_metric("tpr@median")(torch.tensor([[8, 2, 0], [1, 9, 0], [5, 0, 5]]))
    >>> value
    tensor([0.8000], dtype=torch.float64)
    """

    leading = 1
    pools_sums = False
    registry, method = AVERAGING_REGISTRY, "compute_average"
    compute_average: Callable[..., Any]

    def forward(self, metric_values: Tensor, **dependencies: Tensor) -> Tensor:  # (rows, C) -> (rows, 1)
        arguments = {name: as_array(value.contiguous()) for name, value in dependencies.items()}
        averages = self.compute_average(as_array(metric_values.contiguous()), **arguments)
        return conform(f"{type(self).__name__}.compute_average", averages, metric_values[:, :1])


class ExperimentAggregator(RecordedArguments, Registered):
    """Base of the methods that pool experiments. Class attributes: `full_name`, `aliases`.

    `aggregate(experiment_samples, bounds)` makes (S,) of (S, M) samples of M experiments, a tensor or an array, with
    the bounds of the metric. An aggregator with `takes_classes` is given all classes at once: (S, M, classes) -> (S,
    classes). Options are keyword arguments of an `__init__(self, rng, ...)` that calls `super().__init__(rng=rng)`.

    >>> with temporary_registrations():
    ...     class Best(ExperimentAggregator):
    ...         full_name, aliases = "The largest", ["best"]
    ...
    ...         def aggregate(self, experiment_samples, bounds):
    ...             return experiment_samples.amax(1)
    ...     pooled = get_experiment_aggregator("best")(torch.tensor([[0.1, 0.2], [0.4, 0.3]]), (0.0, 1.0))
    >>> pooled
    tensor([0.2000, 0.4000])
    """

    registry, method, required = AGGREGATION_REGISTRY, "aggregate", ("full_name", "aliases")
    tables = (AGGREGATION_REGISTRY,)
    takes_classes = False
    aggregate: Callable[..., Any]

    def __init__(self, rng: RNG) -> None:
        super().__init__()
        self.rng = rng

    @classmethod
    def _check_arguments(cls, names: list[str]) -> None:
        if names != ["experiment_samples", "bounds"]:
            raise TypeError(f"{cls.__name__}.aggregate takes {names}, wanted ['experiment_samples', 'bounds']")

    def forward(self, experiment_samples: Any, bounds: tuple[float, float]) -> Tensor:
        # experiment_samples: a tensor or an array (S, M) or (S, M, classes)  ->  (S,) or (S, classes)
        experiment_samples = without_subclass(experiment_samples)
        if experiment_samples.ndim == 3 and not self.takes_classes:
            columns = [self(samples, bounds) for samples in experiment_samples.unbind(-1)]
            return torch.stack(columns, -1) if columns else experiment_samples[:, 0]
        like = experiment_samples[:, :1] if experiment_samples.ndim == 2 else experiment_samples[:, 0]
        pooled = self.aggregate(as_array(experiment_samples), bounds)
        pooled = conform(f"{type(self).__name__}.aggregate", pooled, like)
        return pooled[:, 0] if experiment_samples.ndim == 2 else pooled


def get_experiment_aggregator(aggregation: str, rng: RNG | None = None, **options: Any) -> ExperimentAggregator:
    """Return the aggregator that an alias names, with its options. ValueError: unknown alias or option.

    `rng` is the stream of its draws, by default `RNG(0)`.

    >>> generator = torch.Generator().manual_seed(0)
    >>> samples = torch.tensor([0.80, 0.84, 0.90]) + 0.02 * torch.randn(2000, 3, generator=generator)
    >>> round(float(get_experiment_aggregator("fe")(samples, (0.0, 1.0)).mean()), 2)
    0.85
    """
    if aggregation not in AGGREGATION_REGISTRY:
        raise ValueError(f"aggregation: there is no {aggregation!r}; {closest(aggregation, AGGREGATION_REGISTRY)}")
    cls = AGGREGATION_REGISTRY[aggregation]
    valid = [name for name in cls.defaults if name != "rng"]
    if unknown := sorted(options.keys() - valid):
        raise ValueError(
            f"aggregation {aggregation!r} has no option {unknown[0]!r}; it has {', '.join(valid) or 'none'}"
        )
    return cls(RNG(0) if rng is None else rng, **options)


@contextmanager
def temporary_registrations() -> Iterator[None]:
    """Unregister the classes that are defined in this context when it ends.

    >>> from tensormetrics.posterior.extend import METRIC_REGISTRY
    >>> from tensormetrics.posterior.metrics.registry import ConfusionMetric
    >>> with temporary_registrations():
    ...     class Half(ConfusionMetric):
    ...         full_name, aliases, sklearn_equivalent = "Half of the accuracy", ["half"], None
    ...         bounds, is_multiclass, dependencies = (0.0, 0.5), True, ("acc",)
    ...
    ...         def compute_metric(self, acc):
    ...             return acc / 2
    ...     inside = "half" in METRIC_REGISTRY
    >>> inside, "half" in METRIC_REGISTRY
    (True, False)
    """
    stores: tuple[dict[str, Any], ...] = METRIC_REGISTRY, AVERAGING_REGISTRY, AGGREGATION_REGISTRY, INSTANCES
    before = [dict(store) for store in stores]
    try:
        yield
    finally:
        for store, content in zip(stores, before, strict=True):
            store.clear()
            store.update(content)


def instance(name: str, make: Callable[[], Any]) -> Any:
    """Return the object of a name, made at the first call."""
    existing = INSTANCES.get(name)
    return INSTANCES.setdefault(name, make()) if existing is None else existing


def closest(name: str, table: Mapping[str, Any]) -> str:
    close = checks.near(name, table, 3)
    first_aliases = {value: alias for alias, value in reversed([*table.items()])}
    return f"the closest are {', '.join(close)}" if close else f"there are {', '.join([*first_aliases.values()][::-1])}"


def check_option(name: str, value: Any, default: Any) -> Any:
    """Return the value of an option of a built-in metric: a bool, a number >= 0 or an integer, like its default."""
    if name == "zero_division":
        check_zero_division(value)
        return float(value)
    if isinstance(default, bool):
        expected, is_valid = "True or False", isinstance(value, bool)
    elif isinstance(default, float):
        is_valid = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf
        expected = "a finite number >= 0"
    else:
        expected, is_valid = "an integer", isinstance(value, Integral) and not isinstance(value, bool)
    if not is_valid:
        raise ValueError(f"{name}: got {value!r}, wanted {expected}")
    return value


def check_zero_division(value: Any) -> None:
    checks.check_number("zero_division", value, "0, 1 or nan", lambda x: x in (0, 1) or math.isnan(x))


def check_aliases(cls: type[Registered]) -> None:
    aliases = cls.aliases
    if not (
        isinstance(aliases, list | tuple)
        and aliases
        and all(isinstance(alias, str) and alias and not set(alias) & set("@+=/ \t\n") for alias in aliases)
        and len(set(aliases)) == len(aliases)
    ):
        raise ValueError(
            f"{cls.__name__}.aliases: got {aliases!r}, wanted a list of distinct names without blanks, @, +, = and /"
        )
    for alias in aliases:
        for table in cls.tables:
            if owner := table.get(alias):
                owner = "a root quantity" if table is ROOTS else owner.__name__
                raise ValueError(f"{cls.__name__}.aliases: {alias!r} belongs to {owner} already; choose another name")


def _default(cls: type[Extension], name: str) -> Quantity:
    if name in ROOTS:
        return ROOTS[name]
    if name not in METRIC_REGISTRY:
        raise ValueError(
            f"{cls.__name__}.dependencies: there is no metric {name!r}; {closest(name, {**METRIC_REGISTRY, **ROOTS})}"
        )
    metric = METRIC_REGISTRY[name]
    return instance(metric.name_with({}), metric)


def _options(cls: type) -> dict[str, Any]:
    parameters = list(inspect.signature(inspect.getattr_static(cls, "__init__")).parameters.values())[1:]
    return {p.name: p.default for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def _positional(cls: type, method: str) -> list[str]:
    function = inspect.getattr_static(cls, method)
    parameters = inspect.signature(getattr(function, "__func__", function)).parameters.values()
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    return names if isinstance(function, staticmethod) else names[1:]


def _like(value: Any, default: Any) -> Any:
    return float(value) if isinstance(default, float) and type(value) is int else value
