"""Metric of Python objects, which are encoded once and scored as tensors."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...core.arguments import checks
from ...core.arguments.repr import shown
from ..comparators.base import Answers, reuse_answers
from ..tensors.normalizers import Normalizer, Raw, normalize, normalized, required_self_overlaps
from ..tensors.overlap import Overlap
from ..tensors.policy import Policy
from .columns import rows_of_both
from .matching import Match, Matching, Path
from .nodes.function import FunctionError
from .nodes.node import NeedsTensors, Node, Normalized, Preprocess, upper_bound_mode


class SolvedOverlap(NamedTuple):
    """Overlaps of pairs of objects, with an upper bound and whether they are proved to be optimal."""

    cross: Tensor  # (B,) float64
    pred: Tensor  # (B,) float64
    ref: Tensor  # (B,) float64
    exact: Tensor  # (B,) bool: all three
    bound: Tensor  # (B,) float64: upper bound of the optimal cross-overlap


class StructuredMetric(nn.Module):
    """Similarity of two objects of one type. It has no running state, so that a class shares one metric.

    `plan` builds the tree of nodes for a policy at first use, because types may be defined after the decorator has run.
    A metric is pickled as its plan.

    Args:
        plan: Function from a policy to the tree of nodes.
        normalizer: Normalizer of the overlap.
        policy: Policy of the collections; None for that of the enclosing metric.

    Example:
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

    _device_buffer: Tensor

    def __init__(self, plan: Callable[[Policy], Node], normalizer: Normalizer, policy: Policy | None = None) -> None:
        super().__init__()
        self.plan, self.normalizer, self.explicit_policy = plan, normalizer, policy
        self.policy = policy or Policy.parse("agree")
        self._reads = required_self_overlaps([normalizer], self.policy.zero_division)
        self.register_buffer("_device_buffer", torch.empty(0), persistent=False)  # moves with the module
        self._nodes: dict[Policy, Node] = {}
        self._node: Node | None = None  # under its own policy, from the first call of `score` on

    def extra_repr(self) -> str:
        return f"{shown(self.plan)}, normalizer={self.normalizer}, policy={self.policy}"

    @property
    def device(self) -> torch.device:
        """Device of the tensors; `.to(device)` changes it."""
        return self._device_buffer.device

    def node(self, policy: Policy | None = None) -> Node:
        """Return the tree of nodes without the normalizer, under the policy of the metric, else the given one."""
        policy = self.explicit_policy or policy or self.policy
        if policy not in self._nodes:
            self._nodes[policy] = self.plan(policy)
        return self._nodes[policy]

    def nested(self, policy: Policy) -> Node:
        """Return the tree of nodes, with the normalizer, as a part of another metric."""
        node = self.node(policy)
        if isinstance(self.normalizer, Raw):
            return node
        return Normalized(node, self.normalizer, (self.explicit_policy or policy).zero_division)

    def under(self, policy: Policy) -> "StructuredMetric":
        """Return a copy of the metric with another policy."""
        return StructuredMetric(self.plan, self.normalizer, policy).to(self.device)

    def forward(self, preds: Sequence[Any], refs: Sequence[Any]) -> Tensor:
        # B objects each  ->  (B,) float64
        """Compute the normalized score of each pair."""
        return self._score(self.cross_and_self_overlaps(preds, refs, self._reads))

    def cross_and_self_overlaps(
        self, preds: Sequence[Any], refs: Sequence[Any], reads: Sequence[str] = ("pred", "ref")
    ) -> Overlap:
        # B objects each  ->  (B,) each
        """Compute `overlap` without the bound; self-overlaps not in `reads` are 0 and are not computed."""
        checks.check_consistent_length(preds=preds, refs=refs)
        rows, i, j = self._encode(preds, refs)
        return self._overlap(rows, i, j, reads)

    def self_overlaps(self, refs: Sequence[Any]) -> Tensor:
        # B objects  ->  (B,) float64
        """Compute the overlap of each reference with itself."""
        rows, _, j = self._encode([], refs)
        return self.node().self_similarity(rows, j)

    def overlap(self, preds: Sequence[Any], refs: Sequence[Any]) -> SolvedOverlap:
        # B objects each  ->  (B,) each
        """Compute the overlaps of each pair, before the normalizer.

        Raises:
            ValueError: If the lists have different lengths.
        """
        checks.check_consistent_length(preds=preds, refs=refs)
        rows, i, j = self._encode(preds, refs)
        overlap = self._overlap(rows, i, j)
        if not self.node().inexact:
            return SolvedOverlap(*overlap, torch.ones_like(i, dtype=torch.bool), overlap.cross)
        token = upper_bound_mode.set(True)
        try:
            upper = self._overlap(rows, i, j)
        finally:
            upper_bound_mode.reset(token)
        exact = torch.stack([value == bound for value, bound in zip(overlap, upper, strict=True)]).all(0)
        return SolvedOverlap(*overlap, exact, upper.cross)

    def score(self, pred: Any, ref: Any) -> float:
        """Compute the normalized score of one pair."""
        if (node := self._node) is None:
            node = self._node = self.node()
        with reuse_answers(Answers()):
            if node.supports_scalar_path:
                try:
                    a, b = node.read((pred, ref))
                    return node.scalar_similarity(a, b) if type(self.normalizer) is Raw else self._ratio(node, a, b)
                except FunctionError as error:
                    raise error.error from None
                except (NeedsTensors, TypeError, ValueError):
                    pass  # the tensor path supports more values, and reports errors with paths
            return self([pred], [ref]).item()

    def _ratio(self, node: Node, a: Any, b: Any) -> float:
        p = node.scalar_self_similarity(a) if "pred" in self._reads else 0.0
        r = node.scalar_self_similarity(b) if "ref" in self._reads else 0.0
        return normalized(node.scalar_similarity(a, b), p, r, self.normalizer, self.policy.zero_division)

    def score_self(self, x: Any, side: str = "pred") -> float:
        """Compute the score of an object with itself; side "ref" applies the preprocessing of references."""
        if side not in ("pred", "ref"):
            raise ValueError(f"side: got {side!r}, wanted 'pred' or 'ref'")
        rows, *indices = self._encode(*(([x], []) if side == "pred" else ([], [x])))
        s = self.node().self_similarity(rows, torch.cat(indices))
        return self._score(Overlap(s, s, s)).item()

    def compute(self, pred: Any, ref: Any, max_depth: int | None = None) -> tuple[float, Matching]:
        """Compute the score and the matched components, down to paths of `max_depth` components, default all."""
        rows, i, j = self._encode([pred], [ref])
        score = self._score(self._overlap(rows, i, j, self._reads)).item()

        def find() -> Iterator[Match]:
            yield Match(Path(), pred, Path(), ref, score)
            yield from self._matches(self.node(), rows, 0, 1, pred, ref, Path(), Path(), max_depth)

        return score, Matching(find)

    def gram_matrix(self, xs: Sequence[Any], ys: Sequence[Any]) -> Tensor:  # ->  (len(xs), len(ys)) float64
        """Compute the normalized scores of all pairs; every object is encoded once."""
        rows, i, j = self._encode(xs, ys)
        node = self.node()
        cross = node.similarity(rows, i.repeat_interleave(len(ys)), j.repeat(len(xs))).view(len(xs), len(ys))
        pred, ref = self._self_overlaps(rows, i, j, self._reads)
        return self._score(Overlap(cross, pred[:, None], ref))

    def contramap(self, f_pred: Callable[[Any], Any], f_ref: Callable[[Any], Any] | None = None) -> "StructuredMetric":
        """Return the metric after preprocessing: predictions by `f_pred`, references by `f_ref` (default the same)."""
        functions = f_pred, f_ref or f_pred
        return StructuredMetric(partial(_preprocessed, self, functions), self.normalizer, self.explicit_policy)

    def _encode(self, preds: Sequence[Any], refs: Sequence[Any]) -> tuple[Any, Tensor, Tensor]:
        """Encode all objects; return the rows, and the indices of the predictions and of the references."""
        split, device = len(preds), self.device
        values = [*preds, *refs]
        rows = self.node().encode(values, split, rows_of_both(split), device)
        index = torch.arange(len(values), device=device)
        return rows, index[:split], index[split:]

    def _overlap(self, rows: Any, i: Tensor, j: Tensor, reads: Sequence[str] = ("pred", "ref")) -> Overlap:
        # i, j: (B,)  ->  (B,) each
        return Overlap(self.node().similarity(rows, i, j), *self._self_overlaps(rows, i, j, reads))

    def _self_overlaps(self, rows: Any, i: Tensor, j: Tensor, reads: Sequence[str]) -> Sequence[Tensor]:
        # i: (P,)  j: (R,)  ->  (P,), (R,)
        if not reads:
            return [torch.zeros(len(index), dtype=torch.float64, device=index.device) for index in (i, j)]
        indices = {"pred": i, "ref": j}
        requested = [index if name in reads else index[:0] for name, index in indices.items()]
        overlaps = self.node().self_similarity(rows, torch.cat(requested)).split(list(map(len, requested)))
        return [
            overlap if len(overlap) else overlap.new_zeros(len(index))
            for overlap, index in zip(overlaps, (i, j), strict=True)
        ]

    def _score(self, overlap: Overlap) -> Tensor:
        return normalize(*overlap, self.normalizer, self.policy.zero_division)

    def _matches(
        self, node: Node, rows: Any, i: int, j: int, x: Any, y: Any, pred: Path, ref: Path, max_depth: int | None
    ) -> Iterator[Match]:
        """Yield the matches of the parts of a matched pair depth-first."""
        for part in node.parts(rows, i, j, x, y):
            pred_path, ref_path = pred.append(*part.names), ref.append(*part.ref_names)
            if max_depth is not None and len(pred_path) > max_depth:
                continue
            row, ref_row = (torch.tensor([index], device=self.device) for index in (part.i, part.j))
            score = part.node.similarity(part.rows, row, ref_row).item()
            if score > 0:
                yield Match(pred_path, part.x, ref_path, part.y, score)
                yield from self._matches(
                    part.node, part.rows, part.i, part.j, part.x, part.y, pred_path, ref_path, max_depth
                )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_nodes": {}, "_node": None}


def _preprocessed(metric: StructuredMetric, functions: tuple[Callable, Callable], policy: Policy) -> Node:
    return Preprocess(metric.node(policy), *functions)
