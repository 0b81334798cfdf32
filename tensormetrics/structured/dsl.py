"""Constructors of metrics of objects: `from tensormetrics.structured import dsl as mm`.

Square brackets hold a type, then, optionally, a constraint and a normalizer. An inner metric is the result of another
constructor, or `...` for the metric that the type implies.

    mm.set_matching[Box, "<->", "f1"](mm.tensor_func(iou)[Box]).score(predicted, expected)
"""

import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from ..core.arguments import checks
from .objects.columns import as_list, record_check
from .objects.derive import Derivation, TypePlan, name_of, no_check, union_of
from .objects.metric import StructuredMetric
from .objects.nodes.function import Function, TensorFunction
from .objects.nodes.graph import Graph, nodes_of
from .objects.nodes.latent import LatentSet
from .objects.nodes.mean import Mean
from .objects.nodes.node import Fields, LeafNode, Node, Product
from .objects.nodes.ranking import ObjectRanking
from .objects.nodes.sequence import Sequence
from .objects.nodes.set import Matched, MaxPair, Set
from .tensors.constraints import Constraint
from .tensors.normalizers import Normalizer
from .tensors.policy import Policy
from .types.records import field_names, is_record, is_tuple, reader, resolved_types

Inner = StructuredMetric | types.EllipsisType


class Bracketed:
    """Constructor that takes its first arguments in square brackets."""

    def __init__(self, construct: Callable[..., Any]) -> None:
        self.construct = construct
        self.__doc__ = construct.__doc__

    def __getitem__(self, arguments: Any) -> Any:
        return self.construct(*(arguments if isinstance(arguments, tuple) else (arguments,)))


@Bracketed
def auto(tp: Any, constraint: str | Constraint = "<->", normalizer: str | Normalizer = "none") -> StructuredMetric:
    """Derive the metric that a type implies: auto[X]."""
    return _metric(TypePlan(tp, Constraint.parse(constraint), None, decorated=False), normalizer)


@Bracketed
def discrete(tp: Any) -> StructuredMetric:
    """Compare hashable values by ==, 1 for equal ones of any types, else 0: discrete[X]."""
    return _metric(partial(_node, LeafNode))


def from_func(
    function: Callable[..., Any], dominated: bool | None = None, *, batched: bool = False
) -> StructuredMetric:
    """Make a metric of a similarity f(x, y), a pure function, called once for each required ordered pair of values.

    Hashable values that are equal by == and of the same type count as one value; (x, x) is a pair too. An update of a
    `Family` calls f once for all its scores. If a call fails, the results before it are kept for the next update.

    Args:
        function: The similarity f.
        dominated: f(x, y) never exceeds f(x, x) or f(y, y). The self-overlap of a collection, by which `precision` and
            similar scores divide, is then the sum of f(x, x) over its items; None means True, and False computes the
            best matching of the collection with itself.
        batched: f takes two lists of equal length, and returns a number for each pair, as a tensor, an array or a list;
            for models.
    """
    return _metric(partial(_node, Function, function, dominated is not False, batched))


def tensor_func(function: Callable[[Tensor, Tensor], Tensor], dominated: bool = False) -> Bracketed:
    """Make a metric of a function of the numbers in values of X, in the order of its fields: tensor_func(f)[X].

    f takes two tensors (pairs, F) float64 on the device of the metric and returns (pairs,).

    Args:
        function: The similarity f.
        dominated: See `from_func`.
    """
    return Bracketed(lambda tp: _metric(partial(_tensor_function, function, dominated, tp)))


@Bracketed
def preprocess(
    f_pred: Callable[[Any], Any], f_ref: Callable[[Any], Any] | None = None
) -> Callable[[StructuredMetric], StructuredMetric]:
    """Apply f before the metric m: preprocess[f](m), or preprocess[f, g](m) to apply g to references."""
    return lambda metric: metric.contramap(f_pred, f_ref)


@Bracketed
def dataclass(
    tp: type, constraint: str | Constraint = "<->", normalizer: str | Normalizer = "none"
) -> Callable[[Mapping[str, Inner]], StructuredMetric]:
    """Make a product over some fields of a class: dataclass[X]({field: metric or ...}).

    Raises:
        ValueError: If the class has no such field.
    """
    if is_tuple(tp) or not is_record(tp):
        raise TypeError(f"dataclass: got {name_of(tp)}, wanted a dataclass or another class with fields")
    all_fields = field_names(tp, all_of_them=True)

    def build(metrics: Mapping[str, Inner]) -> StructuredMetric:
        if unknown := [name for name in metrics if name not in all_fields]:
            raise ValueError(f"dataclass: got the field {unknown[0]!r}, wanted one of {', '.join(all_fields)}")
        inner = {name: None if metric is ... else _inner(metric, tp, constraint) for name, metric in metrics.items()}
        return _metric(partial(_product, tp, Constraint.parse(constraint), inner), normalizer)

    return build


@Bracketed
def mean(
    tp: type, constraint: str | Constraint = "<->", normalizer: str | Normalizer = "none"
) -> Callable[..., StructuredMetric]:
    """Make a weighted mean over fields that either value has: mean[X]({field: metric or ...}, weights={field: w}).

    None and an empty collection count as a missing field; two values without any field have similarity 1. Metrics of
    fields should be at most 1, as normalized ones are.
    """
    build_product = dataclass[tp, constraint, normalizer]

    def build(metrics: Mapping[str, Inner], weights: Mapping[str, float] | None = None) -> StructuredMetric:
        weights = weights or {}
        if unknown := [name for name in weights if name not in metrics]:
            raise ValueError(f"weights: got the field {unknown[0]!r}, wanted one of {', '.join(metrics)}")
        for name, weight in weights.items():
            checks.check_number(f"weights[{name!r}]", weight, "a finite number >= 0", lambda x: 0 <= x < math.inf)
        product = build_product(metrics)
        return _metric(partial(_mean, product.plan, [float(weights.get(name, 1)) for name in metrics]), normalizer)

    return build


@Bracketed
def union(
    tp: Any, constraint: str | Constraint = "<->", normalizer: str | Normalizer = "none"
) -> Callable[[Mapping[Any, Inner]], StructuredMetric]:
    """Make the metric of a union: union[A | B]({A: metric or ..., B: metric or ...}).

    The similarity is that of the case if both values have the same case, else 0.

    Raises:
        ValueError: If the cases are not those of the type.
    """
    cases = typing.get_args(tp)
    if typing.get_origin(tp) not in (typing.Union, types.UnionType):
        raise TypeError(f"union: got {name_of(tp)}, wanted a union such as int | str")

    def build(metrics: Mapping[Any, Inner]) -> StructuredMetric:
        case_types = [type(None) if case is None else case for case in metrics]
        if sorted(map(repr, case_types)) != sorted(map(repr, cases)):
            got, expected = (", ".join(map(name_of, group)) for group in (case_types, cases))
            raise ValueError(f"union: got the cases {got}, wanted {expected}")
        inner = [_inner(metric, case, constraint) for case, metric in zip(case_types, metrics.values(), strict=True)]
        ordered = [inner[case_types.index(case)] for case in cases]
        return _metric(partial(_union, tp, ordered), normalizer)

    return build


def _matching_of(kind: type[Matched], doc: str) -> Bracketed:
    def construct(
        tp: Any, constraint: str | Constraint = "<->", normalizer: str | Normalizer = "none"
    ) -> Callable[[Inner], StructuredMetric]:
        parsed = Constraint.parse(constraint)
        return lambda inner: _metric(partial(_collection, kind, _inner(inner, tp, parsed), parsed), normalizer)

    construct.__doc__ = doc
    return Bracketed(construct)


set_matching = _matching_of(Set, "Match the items of collections of X in any order: set_matching[X, c, N](inner).")
sequence_matching = _matching_of(
    Sequence,
    "Match the items of sequences of X in order: sequence_matching[X, c, N](inner); see `sequence_overlap`.",
)
latent_set_matching = _matching_of(
    LatentSet,
    "Match items with variables under the best mapping: latent_set_matching[X, c, N](inner); see `latent_overlap`.",
)
graph_matching = _matching_of(
    Graph,
    "Match graphs with nodes() of type X and successors(node): graph_matching[X, c, N](inner); see `graph_overlap`.",
)


def max_pair(metric: StructuredMetric) -> StructuredMetric:
    """Make the metric of the best single pair of items of two collections."""
    return _metric(partial(_max_pair, metric))


@Bracketed
def ranking(max_k: int) -> Callable[[StructuredMetric], ObjectRanking]:
    """Encode the first max_k predictions in order of rank: ranking[max_k](inner).

    See `RankingScores.update_rankings`.
    """

    def build(inner: StructuredMetric) -> ObjectRanking:
        if not isinstance(inner, StructuredMetric):
            raise TypeError(f"inner: got {inner!r:.60}, wanted a metric such as dsl.auto[...]")
        return ObjectRanking(_metric(partial(_collection, Set, inner, Constraint.ONE_TO_ONE)), max_k)

    return build


@Bracketed
def normalize(normalizer: str | Normalizer) -> Callable[[StructuredMetric], StructuredMetric]:
    """Normalize the overlap of m by its self-overlaps: normalize[N](m)."""
    return lambda metric: _metric(metric.nested, normalizer)


def _metric(plan: Callable[[Policy], Node], normalizer: str | Normalizer = "none") -> StructuredMetric:
    return StructuredMetric(plan, Normalizer.parse(normalizer))


def _inner(metric: Inner, tp: Any, constraint: str | Constraint) -> StructuredMetric:
    if metric is ...:
        return auto[tp, constraint]
    if not isinstance(metric, StructuredMetric):
        raise TypeError(f"inner: got {metric!r:.60}, wanted a metric such as dsl.auto[...], or ... to derive it")
    return metric


# Plans, called with a policy. They are functions of the module because they are pickled.


def _node(kind: type[Node], *arguments: Any) -> Node:
    *options, _ = arguments  # the last is the policy
    return kind(*options)


def _tensor_function(function: Callable[[Tensor, Tensor], Tensor], dominated: bool, tp: Any, policy: Policy) -> Node:
    columns = Derivation(Constraint.ONE_TO_ONE, policy).number_readers(tp, name_of(tp))
    return TensorFunction(function, columns, record_check(tp) if is_record(tp) else no_check, dominated)


def _product(tp: type, constraint: Constraint, metrics: dict[str, StructuredMetric | None], policy: Policy) -> Node:
    derivation, hints = Derivation(constraint, policy), resolved_types(tp, {})
    nodes: Fields = {
        (name,): (
            reader(tp, name),
            derivation.node(hints[name], f"{name_of(tp)}.{name}") if metric is None else metric.nested(policy),
        )
        for name, metric in metrics.items()
    }
    return Product(nodes, record_check(tp))


def _mean(product: Callable[[Policy], Node], weights: list[float], policy: Policy) -> Node:
    node = product(policy)
    assert isinstance(node, Product)
    return Mean(node.fields, node.check, weights)


def _union(tp: Any, metrics: list[StructuredMetric], policy: Policy) -> Node:
    return union_of(tp, [metric.nested(policy) for metric in metrics], name_of(tp))


def _collection(kind: type[Matched], metric: StructuredMetric, constraint: Constraint, policy: Policy) -> Node:
    inner = without_variables(metric, policy) if kind is not LatentSet else metric.nested(policy)
    return kind.under(policy, inner, nodes_of if kind is Graph else as_list, constraint)


def _max_pair(metric: StructuredMetric, policy: Policy) -> Node:
    return MaxPair(without_variables(metric, policy), as_list)


def without_variables(metric: StructuredMetric, policy: Policy) -> Node:
    inner = metric.nested(policy)
    if inner.has_variables:
        raise TypeError("inner: got items that hold variables; wanted latent_set_matching for them")
    return inner
