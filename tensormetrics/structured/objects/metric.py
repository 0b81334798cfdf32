"""A metric of Python objects: encoded once, scored as tensors."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ... import _checks
from ..._repr import shown
from ..tensors.normalizers import Normalizer, Raw, normalize, normalized, selves_read
from ..tensors.overlap import Overlap
from ..tensors.policy import Policy
from .matching import Match, Matching, Path
from .nodes.function import FunctionError
from .nodes.node import Node, Normalized, NotPlain, Preprocess, bounding
from .values.answers import Answers, sharing
from .values.columns import read_once
from .values.tolerance import reading


class SolvedOverlap(NamedTuple):
    """Overlaps of pairs of objects, how far they may be from the best, and whether they are proved to be that."""

    cross: Tensor  # (B,) float64
    pred: Tensor  # (B,) float64
    ref: Tensor  # (B,) float64
    exact: Tensor  # (B,) bool: all three
    bound: Tensor  # (B,) float64: cross is not above it


class StructuredMetric(nn.Module):
    """The similarity of two objects of one type. It has no running state: one object serves a whole class.

    `plan` builds the tree of nodes for a policy, when it is first needed: types may be defined after the decorator has
    run. A metric is pickled as its plan.

    >>> from dataclasses import dataclass
    >>> @metametric(normalizer="f1")
    ... @dataclass
    ... class Bag:
    ...     items: list[str]
    >>> score, matching = metric_of(Bag).compute(Bag(["a"]), Bag(["b", "a"]))
    >>> print(*matching, sep=", ")
    @ -> @ (0.666667), items -> items (1), items[0] -> items[1] (1)
    >>> metric_of(Bag).gram_matrix([Bag(["a"]), Bag(["b"])], [Bag(["a"])])
    tensor([[1.],
            [0.]], dtype=torch.float64)
    """

    _place: Tensor

    def __init__(self, plan: Callable[[Policy], Node], normalizer: Normalizer, policy: Policy | None = None) -> None:
        super().__init__()
        self.plan, self.normalizer, self.own_policy = plan, normalizer, policy
        self.policy = policy or Policy()
        self._reads = selves_read([normalizer], self.policy.zero_division)
        self.register_buffer("_place", torch.empty(0), persistent=False)  # moves with the module
        self._nodes: dict[Policy, Node] = {}
        self._node: Node | None = None  # under its own policy, once `score` has asked for it

    def extra_repr(self) -> str:
        return f"{shown(self.plan)}, normalizer={self.normalizer}, policy={self.policy}"

    @property
    def device(self) -> torch.device:
        """Where tensors are; `.to(device)` moves it."""
        return self._place.device

    def node(self, policy: Policy | None = None) -> Node:
        """The plan without the normalizer, under the metric's own policy or else the given one."""
        policy = self.own_policy or policy or self.policy
        if policy not in self._nodes:
            self._nodes[policy] = self.plan(policy)
        return self._nodes[policy]

    def nested(self, policy: Policy) -> Node:
        """The plan as a part of another's."""
        node = self.node(policy)
        if isinstance(self.normalizer, Raw):
            return node
        return Normalized(node, self.normalizer, (self.own_policy or policy).zero_division)

    def under(self, policy: Policy) -> "StructuredMetric":
        """The same metric with another policy."""
        return StructuredMetric(self.plan, self.normalizer, policy).to(self.device)

    def forward(self, preds: Sequence[Any], refs: Sequence[Any]) -> Tensor:
        # B objects each  ->  (B,) float64
        """The normalised score of each pair."""
        return self._score(self.cross_and_selves(preds, refs, self._reads))

    def cross_and_selves(
        self, preds: Sequence[Any], refs: Sequence[Any], reads: Sequence[str] = ("pred", "ref")
    ) -> Overlap:
        # B objects each  ->  (B,) each
        """What `overlap` gives, without the proof; a self-overlap that nobody `reads` is 0, and costs nothing."""
        _checks.check_consistent_length(preds=preds, refs=refs)
        rows, i, j = self._encode(preds, refs)
        return self._overlap(rows, i, j, reads)

    def read(self, preds: Sequence[Any], refs: Sequence[Any]) -> None:
        """TypeError or ValueError for an object that is no value of the type, with its place."""
        self._encode(preds, refs)

    def selves(self, refs: Sequence[Any]) -> Tensor:
        # B objects  ->  (B,) float64
        """The overlap of each reference with itself."""
        rows, _, j = self._encode([], refs)
        return self.node().self_similarity(rows, j)

    def overlap(self, preds: Sequence[Any], refs: Sequence[Any]) -> SolvedOverlap:
        # B objects each  ->  (B,) each
        """The overlaps of each pair, before any normalizer; ValueError for lists of different lengths."""
        _checks.check_consistent_length(preds=preds, refs=refs)
        rows, i, j = self._encode(preds, refs)
        found = self._overlap(rows, i, j)
        if not self.node().inexact:
            return SolvedOverlap(*found, torch.ones_like(i, dtype=torch.bool), found.cross)
        token = bounding.set(True)
        try:
            most = self._overlap(rows, i, j)
        finally:
            bounding.reset(token)
        exact = torch.stack([value == bound for value, bound in zip(found, most, strict=True)]).all(0)
        return SolvedOverlap(*found, exact, most.cross)

    def score(self, pred: Any, ref: Any) -> float:
        """The normalised score of one pair."""
        if (node := self._node) is None:
            node = self._node = self.node()
        with sharing(Answers()):
            if node.plain:
                try:
                    a, b = node.read((pred, ref))
                    return node.worth(a, b) if type(self.normalizer) is Raw else self._ratio(node, a, b)
                except FunctionError as error:
                    raise error.error from None
                except (NotPlain, TypeError, ValueError):
                    pass  # tensors take more, and say what is wrong with a value
            return self([pred], [ref]).item()

    def _ratio(self, node: Node, a: Any, b: Any) -> float:
        p = node.own(a) if "pred" in self._reads else 0.0
        r = node.own(b) if "ref" in self._reads else 0.0
        return normalized(node.worth(a, b), p, r, self.normalizer, self.policy.zero_division)

    def score_self(self, x: Any, side: str = "pred") -> float:
        """The score of an object with itself; side "ref" if it is read by the function for references."""
        if side not in ("pred", "ref"):
            raise ValueError(f"side: got {side!r}, wanted 'pred' or 'ref'")
        rows, *sides = self._encode(*(([x], []) if side == "pred" else ([], [x])))
        s = self.node().self_similarity(rows, torch.cat(sides))
        return self._score(Overlap(s, s, s)).item()

    def compute(self, pred: Any, ref: Any, max_depth: int | None = None) -> tuple[float, Matching]:
        """The score and who was matched with whom, down to paths of `max_depth` components."""
        rows, i, j = self._encode([pred], [ref])
        score = self._score(self._overlap(rows, i, j, self._reads)).item()

        def find() -> Iterator[Match]:
            yield Match(Path(), pred, Path(), ref, score)
            yield from self._matches(self.node(), rows, 0, 1, pred, ref, Path(), Path(), max_depth)

        return score, Matching(find)

    def gram_matrix(self, xs: Sequence[Any], ys: Sequence[Any]) -> Tensor:  # ->  (len(xs), len(ys)) float64
        """The normalised scores of all pairs; every object is read once."""
        rows, i, j = self._encode(xs, ys)
        node = self.node()
        cross = node.similarity(rows, i.repeat_interleave(len(ys)), j.repeat(len(xs))).view(len(xs), len(ys))
        pred, ref = self._selves(rows, i, j, self._reads)
        return self._score(Overlap(cross, pred[:, None], ref))

    def contramap(self, f_pred: Callable[[Any], Any], f_ref: Callable[[Any], Any] | None = None) -> "StructuredMetric":
        """The metric of images: of predictions under `f_pred`, of references under `f_ref` (default the same)."""
        functions = f_pred, f_ref or f_pred
        return StructuredMetric(partial(_preprocessed, self, functions), self.normalizer, self.own_policy)

    def _encode(self, preds: Sequence[Any], refs: Sequence[Any]) -> tuple[Any, Tensor, Tensor]:
        """The rows of all objects, and the places of the predictions and of the references among them."""
        split, device = len(preds), self.device

        def where(row: int) -> str:
            return f"preds[{row}]" if row < split else f"refs[{row - split}]"

        values = read_once(lambda: [*preds, *refs], "objects", preds, refs)
        reading(values)
        rows = self.node().encode(values, split, where, device)
        place = torch.arange(len(values), device=device)
        return rows, place[:split], place[split:]

    def _row(self, number: int) -> Tensor:  # ->  (1,) int64
        return torch.tensor([number], device=self.device)

    def _overlap(self, rows: Any, i: Tensor, j: Tensor, reads: Sequence[str] = ("pred", "ref")) -> Overlap:
        # i, j: (B,)  ->  (B,) each
        return Overlap(self.node().similarity(rows, i, j), *self._selves(rows, i, j, reads))

    def _selves(self, rows: Any, i: Tensor, j: Tensor, reads: Sequence[str]) -> Sequence[Tensor]:
        # i: (P,)  j: (R,)  ->  (P,), (R,)
        if not reads:
            return [torch.zeros(len(side), dtype=torch.float64, device=side.device) for side in (i, j)]
        sides = {"pred": i, "ref": j}
        asked = [side if name in reads else side[:0] for name, side in sides.items()]
        found = self.node().self_similarity(rows, torch.cat(asked)).split(list(map(len, asked)))
        return [own if len(own) else own.new_zeros(len(side)) for own, side in zip(found, (i, j), strict=True)]

    def _score(self, overlap: Overlap) -> Tensor:
        return normalize(*overlap, self.normalizer, self.policy.zero_division)

    def _matches(
        self, node: Node, rows: Any, i: int, j: int, x: Any, y: Any, pred: Path, ref: Path, max_depth: int | None
    ) -> Iterator[Match]:
        """The parts of a matched pair in order, each followed at once by its own."""
        for part in node.parts(rows, i, j, x, y):
            here, there = pred.append(*part.names), ref.append(*part.ref_names)
            if max_depth is not None and len(here) > max_depth:
                continue
            score = part.node.similarity(part.rows, self._row(part.i), self._row(part.j)).item()
            if score > 0:
                yield Match(here, part.x, there, part.y, score)
                yield from self._matches(part.node, part.rows, part.i, part.j, part.x, part.y, here, there, max_depth)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_nodes": {}, "_node": None}


def _preprocessed(metric: StructuredMetric, functions: tuple[Callable, Callable], policy: Policy) -> Node:
    return Preprocess(metric.node(policy), *functions)
