"""Names of `metametric.core` for scores of many documents: reductions, families, suites and aggregators."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import structured
from ...structured import Family
from ...structured.objects.family import join_key
from ...structured.objects.reductions import Reduction as Average
from ...structured.objects.values.answers import Answers, reuse_answers
from .core import POLICY, Hook, Subscripted, as_ours

Values = dict[str, float]
Extra = Callable[[Values], Values]


class Reduction:
    """Averages of scores by prefix, and functions of the scores under a prefix that return further ones."""

    def __init__(self, averages: Mapping[str, Average], extras: Sequence[tuple[str, Extra]] = ()) -> None:
        self.averages, self.extras = dict(averages), list(extras)

    def with_extra(self, extra: Extra) -> "Reduction":
        return ReductionWithExtra(self, extra)


class MacroAverage(Reduction):
    """Mean over documents; a normalizer may be None, the score itself."""

    def __init__(self, normalizers: Collection[Any]) -> None:
        super().__init__({"": structured.macro_average(["none" if each is None else each for each in normalizers])})


class MicroAverage(Reduction):
    """Scores of the sums over documents; a normalizer may be None, the score itself."""

    def __init__(self, normalizers: Collection[Any]) -> None:
        super().__init__({"": structured.micro_average(["none" if each is None else each for each in normalizers])})


class MultipleReductions(Reduction):
    """Reductions by prefix."""

    def __init__(self, reductions: Mapping[str, Reduction]) -> None:
        super().__init__(
            {
                join_key(prefix, name): each
                for prefix, part in reductions.items()
                for name, each in part.averages.items()
            },
            [(join_key(prefix, name), extra) for prefix, part in reductions.items() for name, extra in part.extras],
        )


class ReductionWithExtra(Reduction):
    """Reduction with a function that returns further scores."""

    def __init__(self, original: Reduction, extra: Extra) -> None:
        super().__init__(original.averages, [*original.extras, ("", extra)])


class MetricSuite(ABC, Subscripted):
    """Description of scores; `new` makes what is updated with documents."""

    @abstractmethod
    def build(self, hooks: Mapping[Any, Any]) -> dict[str, Family]:
        """Make the families of `structured` by the first part of the names of their scores."""

    @property
    @abstractmethod
    def extras(self) -> list[tuple[str, Extra]]:
        """Functions of the scores under a prefix that return further ones."""

    def new(self, hooks: Mapping[str, Hook] | None = None) -> "Aggregator":
        return Aggregator(self.build(hooks or {}), self.extras)

    def with_extra(self, extra: Extra) -> "MetricSuite":
        return MetricSuiteWithExtra(self, extra)


@dataclass
class MetricFamily(MetricSuite):
    """Averages of one metric."""

    metric: Any
    reduction: Reduction

    def build(self, hooks: Mapping[Any, Any]) -> dict[str, Family]:
        return {"": Family(as_ours(self.metric), self.reduction.averages, hooks=hooks, policy=POLICY)}

    @property
    def extras(self) -> list[tuple[str, Extra]]:
        return self.reduction.extras


@dataclass
class MultipleMetricFamilies(MetricSuite):
    """Families and suites by name."""

    families: Mapping[str, MetricSuite]

    def build(self, hooks: Mapping[Any, Any]) -> dict[str, Family]:
        parts = {name: part.build(hooks) for name, part in self.families.items()}
        return {join_key(name, inner): family for name, part in parts.items() for inner, family in part.items()}

    @property
    def extras(self) -> list[tuple[str, Extra]]:
        return [(join_key(name, prefix), each) for name, part in self.families.items() for prefix, each in part.extras]


@dataclass
class MetricSuiteWithExtra(MetricSuite):
    """Suite with a function that returns further scores."""

    original: MetricSuite
    extra: Extra

    def build(self, hooks: Mapping[Any, Any]) -> dict[str, Family]:
        return self.original.build(hooks)

    @property
    def extras(self) -> list[tuple[str, Extra]]:
        return [*self.original.extras, ("", self.extra)]


class Aggregator(Subscripted):
    """Scores of documents; `families` are those of `structured` by prefix, which have intervals and a device."""

    def __init__(self, families: Mapping[str, Family], extras: Sequence[tuple[str, Extra]]) -> None:
        self.families, self.extras = families, extras

    def update_single(self, pred: Any, ref: Any) -> None:
        self.update_batch([pred], [ref])

    def update_batch(self, preds: Sequence[Any], refs: Sequence[Any]) -> None:
        with reuse_answers(Answers()):
            for family in self.families.values():
                family.update(preds, refs)

    def reset(self) -> None:
        for family in self.families.values():
            family.reset()

    def compute(self) -> Values:
        values = {
            join_key(prefix, "" if name == "overlap" else name): value.item()
            for prefix, family in self.families.items()
            for name, value in family.compute().items()
        }
        for prefix, extra in self.extras:
            values |= {join_key(prefix, name): value for name, value in extra(below(values, prefix)).items()}
        return values


def below(values: Values, prefix: str) -> Values:
    """Return the values under a prefix, without it."""
    if not prefix:
        return dict(values)
    return {name[len(prefix) + 1 :]: value for name, value in values.items() if f"{name}-".startswith(f"{prefix}-")}
