"""The decorator `@metametric`, which derives the metric of a dataclass from its fields."""

import sys
from collections.abc import Mapping
from typing import Any

from ..tensors.constraints import Constraint
from ..tensors.normalizers import Normalizer
from ..tensors.policy import Policy
from ..types.records import UnknownName, field_names, is_record, is_tuple
from .derive import TypePlan
from .metric import StructuredMetric


def metametric(
    normalizer: str | Normalizer | type = "none",
    constraint: str | Constraint = "<->",
    *,
    policy: str | Policy | None = None,
    empty: str | None = None,
    zero_division: float | str | None = None,
    duplicates: str | None = None,
) -> Any:
    """Add a `metric`, derived from the fields, to a dataclass; written above `@dataclass`, with or without arguments.

    It also supports classes of attrs, msgspec and pydantic, NamedTuples and TypedDicts. The similarity of two objects
    is the product over their fields: 1 or 0 for scalars, the metric of its class for a nested dataclass, and for a
    collection the overlap, the largest sum of similarities over the pairs of items that the constraint allows. The
    normalizer computes a score from the overlap and the two self-overlaps. The constraint and the policy apply to every
    collection below the class without a separate metric. The overlap of an empty collection is 0, and so is that of an
    object with an empty collection among its fields, unless `empty="one"`; the score of two such objects is 1 by the
    policy "agree".

    A class with a `Variable` outside of any collection gets a `latent_metric` instead: collections of its objects are
    matched under the best one-to-one mapping of their variables. Undefined names in annotations are resolved at first
    use.

    Args:
        normalizer: "none", "precision", "recall", "jaccard", "dice", "f1", "f0.5", ...
        constraint: Pairs of items that may match: "<->" one to one, "->" and "<-" many to one, "~" all.
        policy: "agree", "conventional", "metametric" or a `Policy`; by default that of the enclosing metric or "agree".
        empty: Overlap of two empty collections, "zero" or "one"; by default that of `policy`, as below.
        zero_division: Value of a ratio 0 / 0, a number or "agree".
        duplicates: Whether equal items count as often as they occur, "multiset", or once, "set".

    Returns:
        The class, or without it a decorator.

    Raises:
        TypeError: If the class is no record, has a field named metric, or a type without a metric.

    Example:
        >>> from dataclasses import dataclass
        >>> @metametric(normalizer="f1")
        ... @dataclass
        ... class Bag:
        ...     items: list[str]
        >>> round(Bag.metric.score(Bag(["a", "b"]), Bag(["a", "b", "c"])), 3)
        0.8
    """
    # Without arguments the first parameter is the class.
    ratio = Normalizer.parse(normalizer if isinstance(normalizer, str | Normalizer) else "none")
    constraint, class_policy = Constraint.parse(constraint), None
    if any(option is not None for option in (policy, empty, zero_division, duplicates)):
        class_policy = Policy.parse(policy or "agree", empty=empty, zero_division=zero_division, duplicates=duplicates)
    localns = dict(sys._getframe(1).f_locals)

    def decorate(cls: type) -> type:
        if is_tuple(cls) or not is_record(cls):
            raise TypeError(f"metametric: got {cls!r}, wanted a dataclass; write @metametric above @dataclass")
        for name in ("metric", "latent_metric"):
            if name in field_names(cls, all_of_them=True):
                raise TypeError(f"{cls.__name__}.{name}: got a field of this name, wanted none; rename the field")
        metric = StructuredMetric(TypePlan(cls, constraint, localns, decorated=True), ratio, class_policy)
        try:
            latent = metric.node().has_variables
        except UnknownName:  # until its first use
            latent = False
        setattr(cls, "latent_metric" if latent else "metric", metric)
        return cls

    return decorate if isinstance(normalizer, str | Normalizer) else decorate(normalizer)


def metric_of(tp: type) -> StructuredMetric:
    """Return the metric of a class under `@metametric`: its attribute `metric`, which type checkers cannot see.

    Args:
        tp: The class.

    Returns:
        The metric: `score` compares two objects, `Family` averages over documents.

    Raises:
        TypeError: If the class has no metric.

    Example:
        >>> from dataclasses import dataclass
        >>> @metametric(normalizer="f1")
        ... @dataclass
        ... class Bag:
        ...     items: list[str]
        >>> metric_of(Bag).score(Bag(["a"]), Bag(["a"]))
        1.0
    """
    metric = getattr(tp, "metric", None)
    if not isinstance(metric, StructuredMetric):
        raise TypeError(f"metric_of: got {tp!r}, which has no metric; write @metametric above it, or use derive")
    return metric


def derive(
    tp: Any,
    *,
    constraint: str | Constraint = "<->",
    policy: str | Policy = "agree",
    localns: Mapping[str, Any] | None = None,
) -> StructuredMetric:
    """Derive the metric of a type, such as `list[tuple[str, int]]`, without a normalizer; see `metametric`.

    Args:
        tp: A class of records, such as a dataclass, or a type of collections, texts or numbers.
        constraint: Pairs of items that may match: "<->" one to one, "->" and "<-" many to one, "~" all.
        policy: Values of empty collections and of repeated items: "agree", "conventional", "metametric" or a `Policy`.
        localns: Further names in scope, for annotations.

    Returns:
        The metric, whose scores are overlaps.

    Raises:
        TypeError: At the first use, if a part of the type has no metric.

    Example:
        >>> derive(list[tuple[str, int]]).score([("a", 1), ("b", 2)], [("a", 1)])  # the overlap
        1.0
    """
    constraint, policy = Constraint.parse(constraint), Policy.parse(policy)
    names = {**sys._getframe(1).f_locals, **(localns or {})}
    return StructuredMetric(TypePlan(tp, constraint, names, decorated=False), Normalizer.parse("none"), policy)
