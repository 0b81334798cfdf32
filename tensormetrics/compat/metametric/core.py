"""Names of `metametric.core`: the decorator, and classes of constraints, hooks, metrics and normalizers."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import GenericAlias
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from ... import structured
from ...structured import dsl as ours
from ...structured.extend import Policy, StructuredMetric

T = TypeVar("T")
POLICY = Policy.parse("metametric")  # of all metrics here, whatever the defaults of `structured` are


class Subscripted:
    """Base of classes that annotations write with a type, such as Metric[Entity]."""

    __class_getitem__: Any = classmethod(GenericAlias)


class MatchingConstraint(Enum):
    """Constraints as the code of metametric reads them: `1:*` is `<-`, and `*:1` is `->`, unlike its documentation."""

    ONE_TO_ONE = "<->"
    ONE_TO_MANY = "<-"
    MANY_TO_ONE = "->"
    MANY_TO_MANY = "~"

    @staticmethod
    def from_str(s: str) -> "MatchingConstraint":
        return MatchingConstraint({"1:1": "<->", "1:*": "<-", "*:1": "->", "*:*": "~"}.get(s, s))


def arrow(constraint: str | MatchingConstraint) -> str:
    """Return the spelling of a constraint that `structured` reads in the same way."""
    return (MatchingConstraint.from_str(constraint) if isinstance(constraint, str) else constraint).value


def metametric(
    cls: type | None = None,
    /,
    normalizer: str | structured.extend.Normalizer = "none",
    constraint: str | MatchingConstraint = "<->",
) -> Any:
    """Add a `metric` to a dataclass, as `structured.metametric` does, with the values of metametric."""
    decorate = structured.metametric(normalizer, arrow(constraint), policy=POLICY)
    return decorate if cls is None else decorate(cls)


def derive_metric(cls: Any, constraint: str | MatchingConstraint) -> StructuredMetric:
    """Derive the metric of a type; see `structured.derive`."""
    return structured.derive(cls, constraint=arrow(constraint), policy=POLICY)


class Matching(structured.extend.Matching):
    """Matches that a metric of a user has found."""

    def __init__(self, matches: Iterable[structured.extend.Match]) -> None:
        super().__init__(lambda: iter(matches))


class Hook(ABC, Subscripted):
    """Base of hooks with a method `on_match`."""

    @abstractmethod
    def on_match(self, data_id: int, pred_path: str, pred: Any, ref_path: str, ref: Any, score: float) -> None:
        """Receive a match."""

    def __call__(self, *match: Any) -> None:
        self.on_match(*match)

    @staticmethod
    def from_callable(func: Callable[..., None]) -> "Hook":
        return type("CallableHook", (Hook,), {"on_match": staticmethod(func)})()


@runtime_checkable
class Graph(Protocol[T]):
    """What `dsl.graph_matching` matches, such as `networkx.DiGraph`."""

    def nodes(self) -> Collection[T]: ...
    def successors(self, x: T) -> Iterator[T]: ...
    def predecessors(self, x: T) -> Iterator[T]: ...


class ParameterizedMetric(ABC, Subscripted):
    """Base of metrics with one score for each of several parameters, such as ranks."""

    @abstractmethod
    def compute(self, x: Any, y: Any) -> tuple[Any, structured.extend.Matching]:
        """Return the scores of two objects, and what is matched."""

    def score(self, x: Any, y: Any) -> Any:
        return self.compute(x, y)[0]

    def score_self(self, x: Any) -> Any:
        return self.score(x, x)

    def contramap(self, f_pred: Callable[[Any], Any], f_ref: Callable[[Any], Any] | None = None) -> Any:
        return ContramappedParameterizedMetric(self, f_pred, f_ref)


class Metric(ParameterizedMetric):
    """Base of metrics with one score: all of `structured`, and those of users, with a method `compute`."""

    def gram_matrix(self, xs: Sequence[Any], ys: Sequence[Any]) -> Tensor:
        return as_ours(self).gram_matrix(xs, ys)

    def contramap(self, f_pred: Callable[[Any], Any], f_ref: Callable[[Any], Any] | None = None) -> StructuredMetric:
        return as_ours(self).contramap(f_pred, f_ref)

    @staticmethod
    def from_function(f: Callable[[Any, Any], float]) -> StructuredMetric:
        return ours.from_func(f).under(POLICY)


Metric.register(StructuredMetric)


def as_ours(metric: Any) -> Any:
    """Return a metric of a user as one of `structured`; all else, such as `...`, is returned unchanged."""
    if isinstance(metric, Mapping):
        return {name: as_ours(part) for name, part in metric.items()}
    is_users = isinstance(metric, Metric) and not isinstance(metric, StructuredMetric)
    return Metric.from_function(metric.score) if is_users else metric


@dataclasses.dataclass(eq=False)
class ContramappedParameterizedMetric(ParameterizedMetric):
    """Metric after preprocessing."""

    inner: ParameterizedMetric
    f_pred: Callable[[Any], Any]
    f_ref: Callable[[Any], Any] | None = None

    def compute(self, x: Any, y: Any) -> tuple[Any, structured.extend.Matching]:
        return self.inner.compute(self.f_pred(x), (self.f_ref or self.f_pred)(y))

    def score_self(self, x: Any) -> Any:
        return self.inner.score_self(self.f_pred(x)) if self.f_ref is None else self.score(x, x)


class RankingMetric(ParameterizedMetric):
    """Overlap of the first 1, 2, ..., max_k items of a ranking with another one, (max_k,) float64."""

    def __init__(self, inner: Any, max_k: int = 100) -> None:
        self.items = ours.normalize["none"](as_ours(inner))
        self.ranking = ours.ranking[max_k](self.items)

    def compute(self, x: Sequence[Any], y: Sequence[Any]) -> tuple[Tensor, structured.extend.Matching]:
        return self._at_all_ranks(self.ranking([x], [y]).hits), Matching(())

    def score_self(self, x: Sequence[Any]) -> Tensor:
        return self._at_all_ranks(self.items.self_overlaps(x[: self.ranking.max_k]).cumsum(0))

    def _at_all_ranks(self, sums: Tensor) -> Tensor:
        ranks = torch.arange(1, self.ranking.max_k + 1, device=sums.device).clamp(max=len(sums))
        return torch.cat([sums.new_zeros(1), sums])[ranks]


class NormalizedParametrizedMetric(ParameterizedMetric):
    """Normalized scores of another metric."""

    def __init__(self, inner: ParameterizedMetric, normalizer: "Normalizer") -> None:
        self.inner, self.normalizer = inner, normalizer

    def compute(self, x: Any, y: Any) -> tuple[Any, structured.extend.Matching]:
        score, matching = self.inner.compute(x, y)
        return self.normalizer.normalize(score, self.inner.score_self(x), self.inner.score_self(y)), matching


class Normalizer(structured.extend.Normalizer, Subscripted):
    """Base of normalizers with a method `normalize` of three numbers, and the attribute `name`."""

    @abstractmethod
    def normalize(self, score_xy: Any, score_xx: Any, score_yy: Any) -> Any:
        """Normalize the score of two objects by those of each with itself."""

    def ratio(self, cross: Tensor, pred: Tensor, ref: Tensor) -> tuple[Tensor, Tensor]:
        overlaps = torch.broadcast_tensors(cross, pred, ref)
        triples = zip(*(overlap.flatten().tolist() for overlap in overlaps), strict=True)
        values = cross.new_tensor([self.normalize(*triple) for triple in triples]).view(overlaps[0].shape)
        return values, torch.ones_like(values)

    @staticmethod
    def from_str(s: str) -> "Normalizer | None":
        """Return the normalizer of a name, None for "none"."""
        if s in AT_RANKS:
            return AT_RANKS[s]()
        parsed = structured.extend.Normalizer.parse(s)
        if isinstance(parsed, structured.extend.FScore):
            return FScore(parsed.beta)
        return {"": lambda: None, "precision": Precision, "recall": Recall, "jaccard": Jaccard}[parsed.name]()


class Ratio(Normalizer):
    """Base of the normalizers of `structured`."""

    zero_division: float | str = POLICY.zero_division

    def normalize(self, score_xy: Any, score_xx: Any, score_yy: Any) -> Any:
        cross, pred, ref = (torch.as_tensor(score, dtype=torch.float64) for score in (score_xy, score_xx, score_yy))
        value = structured.functional.normalize(cross, pred, ref, self, self.zero_division)
        return value if value.ndim else value.item()


class Jaccard(structured.extend.Jaccard, Ratio):
    """Intersection over union."""


class Precision(structured.extend.Precision, Ratio):
    """Overlap over the prediction."""


class Recall(structured.extend.Recall, Ratio):
    """Overlap over the reference."""


class FScore(structured.extend.FScore, Ratio):
    """F-score."""


class PrecisionAtK(Precision):
    """Precision of the first 1, 2, ... items; without items it is 0."""

    name, zero_division = "precision@k", 0.0


class RecallAtK(Recall):
    """Recall of the first 1, 2, ... items; without items it is 0."""

    name, zero_division = "recall@k", 0.0


class RankingAveragePrecision(Normalizer):
    """Sum of precision times the increase of recall."""

    name = "ranking_average_precision"

    def normalize(self, score_xy: Any, score_xx: Any, score_yy: Any) -> float:
        precision, recall = (part().normalize(score_xy, score_xx, score_yy) for part in (PrecisionAtK, RecallAtK))
        return (precision @ recall.diff(prepend=recall.new_zeros(1))).item()


AT_RANKS: dict[str, type[Normalizer]] = {
    **dict.fromkeys(("precision@k", "p@k"), PrecisionAtK),
    **dict.fromkeys(("recall@k", "r@k"), RecallAtK),
    **dict.fromkeys(("ranking_average_precision", "ranking_ap"), RankingAveragePrecision),
}
