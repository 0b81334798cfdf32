"""`@metametric`: a dataclass gets the metric that its fields imply."""

import sys
from collections.abc import Mapping
from typing import Any

from ..fields.schemas.records import UnknownName, field_names, is_record, is_tuple
from ..tensors.constraints import Constraint
from ..tensors.normalizers import Normalizer
from ..tensors.policy import Policy
from .derive import Plan
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
    """Give a dataclass a `metric` derived from its fields; written above `@dataclass`, with or without arguments.
    Classes of attrs, msgspec and pydantic, NamedTuples and TypedDicts are treated alike.

    The similarity of two objects is the product over their fields: 1 or 0 for plain values, that of its own class for
    a nested dataclass, and for a collection the overlap, the largest sum of similarities of items that the constraint
    lets be matched. The normalizer makes a score of the overlap and the two self-overlaps. The constraint and the
    policy hold for every collection below the class that has no metric of its own. An empty collection is worth 0, and
    so is what holds one beside other fields, unless `empty="one"`.

    normalizer: "none", "precision", "recall", "jaccard", "dice", "f1", "f0.5", ... constraint: see `Constraint`; `->`
    and `1:*` are the same, and so are `<-` and `*:1`: the code of the package metametric reads the ratios otherwise.
    policy, empty, zero_division, duplicates: see `Policy`; "conventional" unless the enclosing metric says otherwise.

    A class that holds a `Variable` outside of any collection gets a `latent_metric` instead: collections of it are
    matched under the best one-to-one mapping of their variables.

    TypeError for other classes, a field called metric, and types that have no metric; names that are not defined yet
    are looked up at first use.

    >>> from dataclasses import dataclass
    >>> @metametric(normalizer="f1")
    ... @dataclass
    ... class Bag:
    ...     items: list[str]
    >>> round(Bag.metric.score(Bag(["a", "b"]), Bag(["a", "b", "c"])), 3)
    0.8
    """
    # Without arguments it is the class that stands at the normalizer's place.
    ratio = Normalizer.parse(normalizer if isinstance(normalizer, str | Normalizer) else "none")
    constraint, chosen = Constraint.parse(constraint), None
    if any(given is not None for given in (policy, empty, zero_division, duplicates)):
        chosen = Policy.parse(policy or "conventional", empty=empty, zero_division=zero_division, duplicates=duplicates)
    localns = dict(sys._getframe(1).f_locals)

    def decorate(cls: type) -> type:
        if is_tuple(cls) or not is_record(cls):
            raise TypeError(f"metametric: got {cls!r}, wanted a dataclass; write @metametric above @dataclass")
        for name in ("metric", "latent_metric"):
            if name in field_names(cls, all_of_them=True):
                raise TypeError(f"{cls.__name__}.{name}: this name is where the metric goes; rename the field")
        metric = StructuredMetric(Plan(cls, constraint, localns, decorated=True), ratio, chosen)
        try:
            latent = metric.node().has_variables
        except UnknownName:  # until its first use
            latent = False
        setattr(cls, "latent_metric" if latent else "metric", metric)
        return cls

    return decorate if isinstance(normalizer, str | Normalizer) else decorate(normalizer)


def metric_of(tp: type) -> StructuredMetric:
    """The metric of a class under `@metametric`: its attribute `metric`, which type checkers cannot see.

    TypeError for a class that has none.

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
    policy: str | Policy = "conventional",
    localns: Mapping[str, Any] | None = None,
) -> StructuredMetric:
    """The metric of a type, such as `list[tuple[str, int]]`, without a normalizer; see `metametric`.

    >>> derive(list[tuple[str, int]]).score([("a", 1), ("b", 2)], [("a", 1)])  # the overlap
    1.0
    """
    constraint, policy = Constraint.parse(constraint), Policy.parse(policy)
    names = {**sys._getframe(1).f_locals, **(localns or {})}
    return StructuredMetric(Plan(tp, constraint, names, decorated=False), Normalizer.parse("none"), policy)
