"""Scores of the items of each label."""

import dataclasses
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..tensors.normalizers import LABEL_AVERAGES, Normalizer, Raw, mean_over_labels, normalize
from ..tensors.policy import Policy
from .matching import Path
from .metric import StructuredMetric
from .nodes.node import LeafNode, Node, Normalized, Product
from .nodes.set import Set


class ByLabel:
    """Overlaps by the label of the items, to be summed over documents.

    by: path from an item, of an object that consists of one collection, to the scalar that is its label; only items of
    the same label match. labels: the labels that count, in this order; default all that occur. `scores` returns
    "f1[label]", "types-f1", the mean over the labels that occur, and "weighted-f1", weighted by the self-overlaps of
    the references.
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
        policy = dataclasses.replace(metric.policy, empty="zero")  # an object may have items of other labels
        self.metric = StructuredMetric(partial(_collection, metric), Raw(), policy).to(metric.device)
        self.items, node = root_collection(metric.node(policy))
        self.label = label_reader(node.inner, by)

    def sums_of(self, preds: Sequence[Any], refs: Sequence[Any]) -> dict[Hashable, Tensor]:
        # ->  label: (3,) float64
        """Compute the overlaps of each label in a batch of documents."""
        groups: dict[tuple[int, Hashable], tuple[list[Any], list[Any]]] = {}
        for is_ref, objects in enumerate((preds, refs)):
            for document, value in enumerate(objects):
                for item in self.items(value):
                    groups.setdefault((document, self.label(item)), ([], []))[is_ref].append(item)
        labels = self.labels if self.labels is not None else dict.fromkeys(label for _, label in groups)
        label_ids = {label: n for n, label in enumerate(labels)}
        groups = {key: items for key, items in groups.items() if key[1] in label_ids}
        preds, refs = zip(*groups.values(), strict=True) if groups else ((), ())
        overlap = torch.stack(self.metric.cross_and_self_overlaps(preds, refs), -1).cpu()
        ids = torch.tensor([label_ids[label] for _, label in groups], dtype=torch.int64, device="cpu")
        return dict(zip(labels, overlap.new_zeros(len(label_ids), 3).index_add(0, ids, overlap), strict=True))

    def scores(self, label_sums: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
        # label_sums: encoded label: (3,)
        """Compute the scores: key -> () float64."""
        none = torch.zeros(3, dtype=torch.float64, device=device)
        if self.labels is None:
            names = map(json.loads, label_sums)
            texts = [f"{name[1] if isinstance(name, list) else name}" for name in names]
            sums: dict[Hashable, Tensor] = dict(zip(texts, label_sums.values(), strict=True))
        else:
            sums = {label: label_sums.get(encode_label(label), none) for label in self.labels}
        table = torch.stack([*sums.values(), none])[:-1]  # (L, 3)
        cross, pred, ref = table.unbind(-1)
        result: dict[str, Tensor] = {}
        for name, normalizer in self.normalizers.items():
            scores = normalize(cross, pred, ref, normalizer, self.zero_division)
            result |= {f"{name}[{label}]": score for label, score in zip(sums, scores, strict=True)}
            result |= {f"{average}-{name}": mean_over_labels(scores, pred, ref, average) for average in LABEL_AVERAGES}
        return result


def encode_label(label: Hashable) -> str:
    """Encode a label for a state: scalars as JSON, others by their class and text."""
    if label is None or type(label) in (str, bool, int, float):
        return json.dumps(label)
    return json.dumps([type(label).__qualname__, f"{label}"])


def encode_sums(sums: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    # sums: (3,) each  ->  (n,) uint8, the labels line by line; (L, 3)
    """Encode labels and their sums as rows, which can be concatenated."""
    table = torch.stack([*sums.values()])
    lines = "".join(f"{label}\n" for label in sums).encode("ascii")
    return torch.frombuffer(bytearray(lines), dtype=torch.uint8).to(table.device), table


def decode_sums(names: Tensor, sums: Tensor) -> dict[str, Tensor]:
    # names: (n,) uint8  sums: (L, 3)  ->  label: (3,)
    """Decode the states: the sums of each label, which may be in several rows."""
    labels = bytes(names.to(torch.uint8).cpu().numpy()).decode("ascii").splitlines()
    return add_rows(zip(labels, sums, strict=True))


def add_rows(rows: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Add the sums of each label, in the order in which labels occur."""
    result: dict[str, Tensor] = {}
    for label, row in rows:
        result[label] = result[label] + row if label in result else row
    return result


def root_collection(node: Node) -> tuple[Callable[[Any], Sequence[Any]], Set]:
    """Return the reader of the items of the one collection that an object consists of, and its node.

    Normalizers around the collection are skipped, since they do not apply to overlaps of single labels.
    """
    reads = []
    while isinstance(node := _without_normalizer(node), Product) and len(node.fields) == 1:
        ((read, node),) = node.fields.values()
        reads.append(read)
    if not isinstance(node, Set):
        raise ValueError("by: got a metric of another type, wanted the metric of one collection of items")
    return partial(_read, [*reads, node.items]), node


def label_reader(node: Node, by: str) -> Callable[[Any], Hashable]:
    """Return the reader of the label of an item.

    Raises:
        ValueError: If the path does not lead to a scalar that is compared.
    """
    reads = []
    for component in Path.parse(by):
        node = _without_normalizer(node)
        if not isinstance(node, Product) or (component,) not in node.fields:
            raise ValueError(f"by: got {by!r}, which has no part {component!r} that is compared")
        read, node = node.fields[component,]
        reads.append(read)
    if not isinstance(_without_normalizer(node), LeafNode):
        raise ValueError(f"by: got {by!r}, which is no scalar that is compared by ==")
    return partial(_read, reads)


def _without_normalizer(node: Node) -> Node:
    while isinstance(node, Normalized):  # reads values as the inner node does, and separates items by label too
        node = node.inner
    return node


def _read(reads: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    for read in reads:
        value = read(value)
    return value


def _collection(metric: StructuredMetric, policy: Policy) -> Node:
    return root_collection(metric.node(policy))[1]
