"""Names of `metametric.core` for scores of many documents: reductions, families, suites and aggregators."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ... import structured
from ...structured import Family
from ...structured.comparators.base import Answers, reuse_answers
from ...structured.objects.family import join_key
from .core import POLICY, Hook, Subscripted, as_ours

Values = dict[str, float]
Extra = Callable[[Values], Values]  # a function of the scores under a prefix that returns further ones


class Described:
    """Parts of a description by prefix, and functions of the scores under a prefix that return further ones."""

    def __init__(self, parts: Mapping[str, Any], extras: Sequence[tuple[str, Extra]] = ()) -> None:
        self.parts, self.extras = dict(parts), list(extras)


def joined(described: Mapping[str, Described]) -> tuple[dict[str, Any], list[tuple[str, Extra]]]:
    """Return the parts and the functions of several descriptions, each under its prefix."""
    parts = {join_key(prefix, name): part for prefix, each in described.items() for name, part in each.parts.items()}
    return parts, [(join_key(prefix, name), extra) for prefix, each in described.items() for name, extra in each.extras]


class Reduction(Described):
    """Averages of scores by prefix."""

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
        super().__init__(*joined(reductions))


class ReductionWithExtra(Reduction):
    """Reduction with a function that returns further scores."""

    def __init__(self, original: Reduction, extra: Extra) -> None:
        super().__init__(original.parts, [*original.extras, ("", extra)])


class MetricSuite(Described, Subscripted):
    """Description of scores, pairs of a metric and its averages; `new` makes what is updated with documents."""

    def new(self, hooks: Mapping[str, Hook] | None = None) -> "Aggregator":
        options: dict[str, Any] = {"hooks": hooks or {}, "policy": POLICY}
        parts = {prefix: Family(as_ours(metric), means, **options) for prefix, (metric, means) in self.parts.items()}
        return Aggregator(parts, self.extras)

    def with_extra(self, extra: Extra) -> "MetricSuite":
        return MetricSuiteWithExtra(self, extra)


class MetricFamily(MetricSuite):
    """Averages of one metric."""

    def __init__(self, metric: Any, reduction: Reduction) -> None:
        super().__init__({"": (metric, reduction.parts)}, reduction.extras)


class MultipleMetricFamilies(MetricSuite):
    """Families and suites by name."""

    def __init__(self, families: Mapping[str, MetricSuite]) -> None:
        super().__init__(*joined(families))


class MetricSuiteWithExtra(MetricSuite):
    """Suite with a function that returns further scores."""

    def __init__(self, original: MetricSuite, extra: Extra) -> None:
        super().__init__(original.parts, [*original.extras, ("", extra)])


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
