"""Scores of the items of each label."""

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torchmetrics
from torch import Tensor

from ..._distributed import check_same_options, described, exchange
from ..tensors.normalizers import Normalizer, Raw, normalize
from ..tensors.policy import Policy
from .invalid import EMPTY
from .matching import Path
from .metric import StructuredMetric
from .nodes.node import Leaf, Node, Product
from .nodes.set import Set


class ByLabel:
    """Overlaps by the label of the items, summed over documents; its memory grows with the labels alone.

    by: the path, from an item of the one collection that an object consists of, to the plain value that is its label;
    only items of one label match. labels: those that count, in this order; default all that are met. compute gives
    "f1[label]", "types-f1", the mean over the labels met, and "weighted-f1", weighted by the references' self-overlap.
    """

    def __init__(
        self,
        metric: StructuredMetric,
        by: str,
        normalizers: Mapping[str, Normalizer],
        labels: Sequence[Hashable] | None = None,
    ) -> None:
        self.normalizers, self.labels, self.by = normalizers, labels, by
        self.zero_division = metric.policy.zero_division
        policy = dataclasses.replace(metric.policy, empty="zero")  # other labels' items are no empty collection
        self.metric = StructuredMetric(partial(_collection, metric), Raw(), policy).to(metric.device)
        self.items, node = root_collection(metric.node(policy))
        self.label = label_reader(node.inner, by)
        self.reset()

    def reset(self) -> None:
        """Forget all documents."""
        self.sums = {label: torch.zeros(3, dtype=torch.float64, device="cpu") for label in self.labels or ()}

    def add(self, sums: dict[Hashable, Tensor]) -> None:
        """Add the `sums_of` some documents."""
        self.sums = added([self.sums, sums])

    def compute(self, beside: torchmetrics.Metric) -> dict[str, Tensor]:
        """Key -> () float64; of all ranks where there are several, as those of the metric `beside` are.

        ValueError on all ranks where they differ in an option, which it names; RuntimeError on all where one fails.
        """
        if not (beside._to_sync and beside.distributed_available_fn()):
            return self.scores(self.sums)
        options = {
            "by": self.by,
            "labels": self.labels,
            "scores": self.normalizers,
            "zero_division": self.zero_division,
        }
        said = {name: described(value) for name, value in options.items()}
        of_ranks, sums = zip(*exchange((said, self.sums), beside.process_group), strict=True)
        check_same_options(of_ranks)
        return self.scores(added(sums))

    def sums_of(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[Hashable, Tensor]:
        # ->  label: (3,) float64
        """The overlaps of each label in some documents."""
        groups: dict[tuple[int, Hashable], tuple[list[Any], list[Any]]] = {}
        for side, objects in enumerate((preds, refs)):
            for number, value in enumerate(objects):
                for item in () if value is EMPTY else self.items(value):
                    groups.setdefault((number, self.label(item)), ([], []))[side].append(item)
        labels = self.labels if self.labels is not None else dict.fromkeys(label for _, label in groups)
        place = {label: n for n, label in enumerate(labels)}
        groups = {key: sides for key, sides in groups.items() if key[1] in place}
        preds, refs = zip(*groups.values(), strict=True) if groups else ((), ())
        overlap = torch.stack(self.metric.cross_and_selves(preds, refs), -1).cpu()
        number = torch.tensor([place[label] for _, label in groups], dtype=torch.int64, device="cpu")
        return dict(zip(labels, overlap.new_zeros(len(place), 3).index_add(0, number, overlap), strict=True))

    def scores(self, sums: dict[Hashable, Tensor]) -> dict[str, Tensor]:
        """Key -> () float64."""
        table = torch.stack([*sums.values(), torch.zeros(3, dtype=torch.float64, device="cpu")])[:-1]  # (L, 3)
        met = (table[:, 1:] > 0).any(-1)
        cross, pred, ref = table.unbind(-1)
        result: dict[str, Tensor] = {}
        for name, normalizer in self.normalizers.items():
            scores = normalize(cross, pred, ref, normalizer, self.zero_division)
            result |= {f"{name}[{label}]": score for label, score in zip(sums, scores, strict=True)}
            result[f"types-{name}"] = scores[met].nanmean()
            weight = ref.where(~scores.isnan(), 0)
            result[f"weighted-{name}"] = (scores * weight).nansum() / weight.sum()
        return result


def added(tables: Sequence[dict[Hashable, Tensor]]) -> dict[Hashable, Tensor]:
    """The sums of each label, in the order in which labels are met."""
    labels = dict.fromkeys(label for sums in tables for label in sums)
    return {label: torch.stack([sums[label] for sums in tables if label in sums]).sum(0) for label in labels}


def root_collection(node: Node) -> tuple[Callable[[Any], Sequence[Any]], Set]:
    """How to read the items of the one collection that an object consists of, and its node."""
    reads = []
    while isinstance(node, Product) and len(node.fields) == 1:
        ((read, node),) = node.fields.values()
        reads.append(read)
    if not isinstance(node, Set):
        raise ValueError("by: got a metric of something else than one collection, wanted a collection of items")
    return partial(_read, [*reads, node.items]), node


def label_reader(node: Node, by: str) -> Callable[[Any], Hashable]:
    """How to read the label of an item; ValueError where the path leads to no plain value that is compared."""
    reads = []
    for component in Path.parse(by):
        if not isinstance(node, Product) or (component,) not in node.fields:
            raise ValueError(f"by: got {by!r}, which has no part {component!r} that is compared")
        read, node = node.fields[component,]
        reads.append(read)
    if not isinstance(node, Leaf):
        raise ValueError(f"by: got {by!r}, which is no plain value that is compared by ==")

    return partial(_read, reads)


def _read(reads: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    for read in reads:
        value = read(value)
    return value


def _collection(metric: StructuredMetric, policy: Policy) -> Node:
    return root_collection(metric.node(policy))[1]
