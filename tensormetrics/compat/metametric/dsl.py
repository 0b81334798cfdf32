"""The constructors of `metametric.dsl`: `from tensormetrics.compat.metametric import dsl as mm`.

They call those of `structured.dsl`, and their metrics have the values of metametric. Last come their names as classes
of `metametric.core`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...structured import dsl as ours
from ...structured.dsl import Bracketed
from ...structured.extend import Match as Match
from ...structured.extend import Path as Path
from ...structured.extend import StructuredMetric
from . import core, suites
from .core import Hook as Hook
from .core import Matching as Matching
from .core import MatchingConstraint, Metric


def served(made: Any) -> Any:
    """Give a metric, or what makes one of inner metrics, the values of metametric."""
    if isinstance(made, StructuredMetric):
        return made.under(core.POLICY)
    return lambda inner: served(made(core.as_ours(inner)))


def configured(construct: Bracketed) -> Bracketed:
    """Return a constructor that takes a type, a constraint and a normalizer as metametric spells them."""

    def constructed(tp: Any, constraint: str | MatchingConstraint = "<->", normalizer: Any = None) -> Any:
        return served(construct[tp, core.arrow(constraint), normalizer or "none"])

    constructed.__doc__ = construct.__doc__
    return Bracketed(constructed)


auto, dataclass, union = configured(ours.auto), configured(ours.dataclass), configured(ours.union)
set_matching, sequence_matching = configured(ours.set_matching), configured(ours.sequence_matching)
latent_set_matching, graph_matching = configured(ours.latent_set_matching), configured(ours.graph_matching)
discrete = Bracketed(lambda cls: served(ours.discrete[cls]))
normalize = Bracketed(lambda normalizer: served(ours.normalize[normalizer]))
ranking = Bracketed(lambda max_k: partial(core.RankingMetric, max_k=max_k))
preprocess = preprocess_param = ours.preprocess
macro_average, micro_average = suites.MacroAverage, suites.MicroAverage
from_func = MetricFromFunction = Metric.from_function
max_pair = MaxPairMatchingMetric = served(ours.max_pair)


@Bracketed
def normalize_param(
    normalizer: str | core.Normalizer,
) -> Callable[[core.ParameterizedMetric], core.ParameterizedMetric]:
    """Normalize the scores of a ranking: normalize_param["precision@k"](ranking[10](m))."""
    parsed = core.Normalizer.from_str(normalizer) if isinstance(normalizer, str) else normalizer
    return lambda metric: metric if parsed is None else core.NormalizedParametrizedMetric(metric, parsed)


def family(metric: Any, reduction: suites.Reduction | Mapping[str, suites.Reduction]) -> suites.MetricFamily:
    """Make a family of a metric and a reduction, or several by prefix."""
    several = suites.MultipleReductions(reduction) if isinstance(reduction, Mapping) else reduction
    return suites.MetricFamily(metric, several)


def suite(collection: Mapping[str, suites.MetricSuite]) -> suites.MetricSuite:
    """Make a suite of families and suites by name."""
    return suites.MultipleMetricFamilies(collection)


def of_inner(construct: Bracketed) -> Callable[..., StructuredMetric]:
    """Return a constructor in square brackets as a function of the inner metric and the constraint."""
    return lambda inner, constraint="<->": construct[object, constraint](inner)


SetMatchingMetric, SequenceMatchingMetric = of_inner(set_matching), of_inner(sequence_matching)
GraphMatchingMetric, DiscreteMetric = of_inner(graph_matching), discrete.construct


def LatentSetMatchingMetric(cls: type, inner: Any, constraint: str | MatchingConstraint = "<->") -> StructuredMetric:
    return latent_set_matching[cls, constraint](inner)


def ProductMetric(cls: type, field_metrics: Mapping[str, Any]) -> StructuredMetric:
    return dataclass[cls](field_metrics)


def UnionMetric(cls: Any, case_metrics: Mapping[Any, Any]) -> StructuredMetric:
    return union[cls](case_metrics)


def ContramappedMetric(
    inner: Any, f_pred: Callable[[Any], Any], f_ref: Callable[[Any], Any] | None = None
) -> StructuredMetric:
    return inner.contramap(f_pred, f_ref)


def NormalizedMetric(inner: Any, normalizer: core.Normalizer) -> StructuredMetric:
    return normalize[normalizer](inner)
