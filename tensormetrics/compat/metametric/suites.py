"""Names of `metametric.core` for scores of many documents: reductions, families, suites and aggregators."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ... import structured
from ...structured import Family, Suite
from ...structured.objects.family import join_key
from ...structured.objects.reductions import Reduction as Average
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
    def build(self, hooks: Mapping[Any, Any]) -> Family | Suite:
        """Make the family or the suite of `structured`."""

    def new(self, hooks: Mapping[str, Hook] | None = None) -> "Aggregator":
        return Aggregator(self.build(hooks or {}))

    def with_extra(self, extra: Extra) -> "MetricSuite":
        return MetricSuiteWithExtra(self, extra)


@dataclass
class MetricFamily(MetricSuite):
    """Averages of one metric."""

    metric: Any
    reduction: Reduction

    def build(self, hooks: Mapping[Any, Any]) -> Family:
        family = Family(as_ours(self.metric), self.reduction.averages, hooks=hooks, policy=POLICY)
        for prefix, extra in self.reduction.extras:
            family.with_extra(of_tensors(extra, prefix))
        return family


@dataclass
class MultipleMetricFamilies(MetricSuite):
    """Families and suites by name."""

    families: Mapping[str, MetricSuite]

    def build(self, hooks: Mapping[Any, Any]) -> Suite:
        return Suite({name: family.build(hooks) for name, family in self.families.items()})


@dataclass
class MetricSuiteWithExtra(MetricSuite):
    """Suite with a function that returns further scores."""

    original: MetricSuite
    extra: Extra

    def build(self, hooks: Mapping[Any, Any]) -> Family | Suite:
        return self.original.build(hooks).with_extra(of_tensors(self.extra))


class Aggregator(Subscripted):
    """Scores of documents; `state` is the family or the suite of `structured`, which has intervals and a device."""

    def __init__(self, state: Family | Suite) -> None:
        self.state = state

    def update_single(self, pred: Any, ref: Any) -> None:
        self.state.update([pred], [ref])

    def update_batch(self, preds: Sequence[Any], refs: Sequence[Any]) -> None:
        self.state.update(preds, refs)

    def reset(self) -> None:
        self.state.reset()

    def compute(self) -> Values:
        return numbers(self.state.compute())


def numbers(values: Mapping[str, Tensor], prefix: str = "") -> Values:
    """Return the values under a prefix by the names of metametric, where the overlap has none."""
    named = {"" if name == "overlap" else name: value.item() for name, value in values.items()}
    if not prefix:
        return named
    return {name[len(prefix) + 1 :]: value for name, value in named.items() if f"{name}-".startswith(f"{prefix}-")}


def of_tensors(extra: Extra, prefix: str = "") -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Return a function of numbers as one of tensors, which `Family` and `Suite` call."""
    return lambda values: {
        join_key(prefix, name): torch.tensor(value, dtype=torch.float64, device="cpu")
        for name, value in extra(numbers(values, prefix)).items()
    }
