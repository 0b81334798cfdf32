"""The contingency table of a labeling and a clustering, sparse, and the metric base that keeps pairs of labels."""

from typing import NamedTuple

from torch import Tensor
from typing_extensions import Unpack

from ... import _checks
from ..._metric import Metric, Options
from ..rows import as_labels, as_tensor, check_finite
from ..sums import distinct


class Contingency(NamedTuple):
    """How many items each class (row) and cluster (col) have in common: the cells that are not zero, in row order.

    Row r is the r-th smallest of the labels that occur, column c that of the clusters. In a batch, shorter tables are
    padded with cells of count 0 and with classes and clusters of size 0.
    """

    row: Tensor  # (..., Z) int64
    col: Tensor  # (..., Z) int64
    count: Tensor  # type: ignore[assignment]  # (..., Z) int64, in place of the method of tuples
    row_size: Tensor  # (..., R) int64: items of each class
    col_size: Tensor  # (..., C) int64: items of each cluster
    total: int


def contingency(labels: Tensor, clusters: Tensor) -> Contingency:
    # labels, clusters: (..., N) integer or floating  ->  see Contingency
    """Count the pairs of label and cluster, in memory proportional to N.

    ValueError for NaN and infinity, other shapes, dtypes or devices.
    """
    _checks.shape("labels", labels, "...", "N")
    _checks.shape("clusters", clusters, *labels.shape)
    _checks.same_device(labels=labels, clusters=clusters)
    flat = {"labels": as_labels("labels", labels.flatten()), "clusters": as_labels("clusters", clusters.flatten())}
    check_finite(**{name: values for name, values in flat.items() if values.is_floating_point()})
    sides = (distinct(values.view(labels.shape)) for values in flat.values())
    (_, row_size, row), (_, col_size, col) = sides
    columns = max(col_size.shape[-1], 1)
    cell, count, _ = distinct(row * columns + col)
    return Contingency(cell // columns, cell % columns, count, row_size, col_size, labels.shape[-1])


def as_contingency(labels: Tensor | Contingency, clusters: Tensor | None) -> Contingency:
    """What every clustering score accepts: a table, or labels and clusters."""
    if isinstance(labels, Contingency) and clusters is None:
        return labels
    if isinstance(labels, Contingency) or clusters is None:
        raise ValueError("wanted either a Contingency alone or two tensors, labels and clusters")
    return contingency(labels, clusters)


class ClusteringMetric(Metric):
    """Keeps the labels and clusters of every update, for a `compute` that calls `table`.

    Subclasses have the same states, so that in a MetricCollection they form one compute group and keep one copy.
    """

    higher_is_better = True
    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0

    labels: Tensor
    clusters: Tensor

    def __init__(self, **kwargs: Unpack[Options]) -> None:
        super().__init__(**kwargs)
        self.add_rows("labels")
        self.add_rows("clusters")

    def update(self, labels: Tensor, clusters: Tensor) -> None:
        # labels, clusters: (N,) or (N, 1) integer or floating
        """Append a batch. NaN and infinity are a ValueError: here on a CPU, in `compute` elsewhere (no waiting)."""
        device = labels.device if isinstance(labels, Tensor) else self.device
        labels = as_labels("labels", as_tensor("labels", labels, device))
        clusters = as_labels("clusters", as_tensor("clusters", clusters, device))
        _checks.same_length(labels=labels, clusters=clusters)
        if device.type == "cpu":
            check_finite(labels=labels, clusters=clusters)
        self.append_rows("labels", labels)
        self.append_rows("clusters", clusters)

    def table(self) -> Contingency:
        return contingency(self.labels, self.clusters)
