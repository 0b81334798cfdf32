"""Sparse contingency table of a labeling and a clustering, and the base class of metrics of such tables."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.metric.base import Metric, Options
from ...core.metric.row_metric import RowMetric
from ...core.native.compiling import breaks_graph
from ...core.resampling.draws import pseudo_masses
from ...core.resampling.resampling import Items
from ...core.resampling.weights import ItemNames, ResamplingUnits
from ..deterministic import distinct
from ..inputs import as_labels, as_tensor, budget, check_finite

MAX_ALONE = 0.03  # of the items, each the only one in its cell, where a biased score has an interval


class Contingency(NamedTuple):
    """Numbers of items that classes (rows) and clusters (columns) have in common: the nonzero cells, in row order.

    Row r is the r-th smallest label, column c the c-th smallest cluster. In a batch, shorter tables are padded with
    cells of count 0 and with classes and clusters of size 0. In the replicates of an interval, counts and sizes are
    sums of weights, float64.
    """

    row: Tensor  # (..., Z) int64
    col: Tensor  # (..., Z) int64
    count: Tensor  # type: ignore[assignment]  # (..., Z) int64, replaces the method of tuples
    row_size: Tensor  # (..., R) int64: items of each class
    col_size: Tensor  # (..., C) int64: items of each cluster
    total: int


class SmoothedTable(NamedTuple):
    """Table whose cells of at most one item, and the empty ones, have equal parts of shares (R,) of the items."""

    table: Contingency
    shares: Tensor


@takes_arrays
def contingency(labels: Tensor, clusters: Tensor) -> Contingency:
    """Count the pairs of label and cluster, in memory proportional to N.

    Shapes: labels, clusters: (..., N) integer or floating -> see Contingency.

    ValueError for NaN and infinity, other shapes, dtypes or devices.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> table = contingency(labels, clusters)
    >>> table.row, table.col, table.count
    (tensor([0, 1, 1]), tensor([0, 0, 1]), tensor([2, 1, 2]))
    """
    return _counted(labels, clusters)


@breaks_graph("contingency counts outside of graphs: the size of its table depends on the labels")
def _counted(labels: Tensor, clusters: Tensor, keep_empty: bool = False) -> Contingency:
    # keep_empty: empty cells, classes and clusters may stay, which changes the rounding of a score only
    flat = _check_labels(labels, clusters)
    table = _count_dense_range(flat[0], flat[1], keep_empty) if labels.ndim == 1 else None
    return table or _count_cells(labels.shape, *flat)[0]


def _check_labels(labels: Tensor, clusters: Tensor) -> list[Tensor]:
    # labels, clusters: (..., N)  ->  both flat
    checks.shape("labels", labels, "...", "N")
    checks.shape("clusters", clusters, *labels.shape)
    checks.same_device(labels=labels, clusters=clusters)
    flat = {"labels": as_labels("labels", labels.flatten()), "clusters": as_labels("clusters", clusters.flatten())}
    check_finite(**{name: values for name, values in flat.items() if values.is_floating_point()})
    return list(flat.values())


def _count_dense_range(labels: Tensor, clusters: Tensor, keep_empty: bool) -> Contingency | None:
    # labels, clusters: (N,)
    """Return the table by dense counting, or None if it has more than 4 cells per item."""
    if not len(labels) or {labels.dtype, clusters.dtype} != {torch.int64}:
        return None
    ends = torch.stack([*labels.aminmax(), *clusters.aminmax()]).tolist()  # the only wait for a GPU
    rows, columns = ends[1] - ends[0] + 1, ends[3] - ends[2] + 1
    if rows * columns > 4 * len(labels):
        return None
    cell = (clusters - ends[2]).add_(labels - ends[0], alpha=columns)
    if labels.is_cpu:
        table = cell.bincount(minlength=rows * columns).view(rows, columns)
    else:  # without the wait of bincount
        table = cell.new_zeros(rows * columns).scatter_add_(0, cell, torch.ones_like(cell)).view(rows, columns)
    row_size, col_size = table.sum(1), table.sum(0)
    if keep_empty and not labels.is_cpu:
        cell = torch.arange(rows * columns, device=labels.device)
        return Contingency(cell // columns, cell % columns, table.view(-1), row_size, col_size, len(labels))
    if not (row_size.all() & col_size.all()):
        table = table[row_size > 0][:, col_size > 0]
        row_size, col_size = row_size[row_size > 0], col_size[col_size > 0]
    row, col = table.nonzero().unbind(1)
    return Contingency(row, col, table[row, col], row_size, col_size, len(labels))


def _count_cells(shape: torch.Size, labels: Tensor, clusters: Tensor) -> tuple[Contingency, Tensor]:
    # labels, clusters: flat, of `shape` (..., N)  ->  the table, the cell of each item (..., N)
    coded = (distinct(values.view(shape)) for values in (labels, clusters))
    (_, row_size, row), (_, col_size, col) = coded
    columns = max(col_size.shape[-1], 1)
    cell, count, index = distinct(row * columns + col)
    return Contingency(cell // columns, cell % columns, count, row_size, col_size, shape[-1]), index


def items_of(
    labels: Tensor,
    clusters: Tensor,
    names: ItemNames,
    score: Callable[[Contingency], Tensor],
    value_range: tuple[float, float] = (0.0, 1.0),
    biased: str = "",
    check_bias: Callable[[str, Tensor, Tensor], None] | None = None,
) -> Items:
    # labels, clusters: (N,)  biased: name of a score that few items in a cell raise
    """Return one row for each item, in its cell, so that weighted sums are tables of weighted items."""
    table, cells = _count_cells(labels.shape, *_check_labels(labels, clusters))
    alone = int((table.count == 1).sum())
    if biased and alone > MAX_ALONE * table.total:
        raise NotImplementedError(
            f"{biased}: {alone} of {table.total} items are alone in their class and cluster, so that chance raises the "
            f"score by an unknown amount; above {MAX_ALONE:.0%} there is no interval, take AdjustedRand"
        )
    unseen = functools.partial(_unseen_scores, table, score) if biased and check_bias is None else None
    ones = torch.ones(len(cells), 1, dtype=torch.float64, device=cells.device)
    read = functools.partial(_read, table=table, score=score)
    identity = names.columns(None if labels.is_floating_point() else labels)
    # Clusters of two models are unrelated, so that their sums are not mixed.
    return Items(ones, names.units, read, cells, max(len(table.count), 1), mixes=False)._replace(
        range=value_range,
        identity=identity,
        is_biased=bool(biased),
        unseen=unseen,
        check_bias=check_bias and functools.partial(check_bias, biased),
    )


def _unseen_scores(
    table: Contingency, score: Callable[[Any], Tensor], seed: int, replicates: int, unit: float
) -> Tensor:
    # unit: items that are resampled together  ->  (R,)
    """Draw the score with the mass that n items leave unseen: with none alone in its cell, 1 - p^(1/n) at chance p.

    Good 1953, doi:10.1093/biomet/40.3-4.237: cells that hold no item have the mass of those alone, cells of one that of
    two items, half of which these keep.
    """
    shape = 1 + int(((table.count == 1) | (table.count == 2)).sum())
    normal = torch.special.ndtri((-pseudo_masses(seed, replicates, table.count.device).sum(0)).exp())
    # Wilson & Hilferty 1931, doi:10.1073/pnas.17.12.684
    mass = unit * shape * (1 - 1 / (9 * shape) + normal / (3 * shape**0.5)).clamp(min=0) ** 3  # of Gamma(shape)
    shares, width = 1 - (-mass / max(table.total, 1)).exp(), len(table.row_size) + len(table.col_size) + 1
    step = max(budget(None, mass.device) // (64 * width), 1)
    return torch.cat([score(SmoothedTable(table, part)) for part in shares.split(step)])


def _read(sums: Tensor, table: Contingency, score: Callable[[Contingency], Tensor]) -> Tensor:
    # sums: (..., Z, 1), weights of the cells  ->  (...)
    count = sums.reshape(-1, sums.shape[-2])
    step = max(budget(None, count.device) // (64 * count.shape[-1]), 1)
    if (count == count.round()).all():  # counts of the data, or of the data without one unit
        scores = _scores_of_counts(count.long(), table, score, step)
    else:
        count = count * table.total / count.sum(-1, keepdim=True)
        scores = torch.cat([score(_reweighted(table, part, table.total)) for part in count.split(step)])
    return scores.view(sums.shape[:-2])


def _scores_of_counts(count: Tensor, table: Contingency, score: Callable[[Contingency], Tensor], step: int) -> Tensor:
    # count: (R, Z) int64  ->  (R,), NaN without items
    total = count.sum(-1)
    scores = torch.full_like(total, torch.nan, dtype=torch.float64)
    for size in total[total > 0].unique().tolist():
        rows = (total == size).nonzero()[:, 0]
        parts = [score(_reweighted(table, count[part], size)) for part in rows.split(step)]
        scores[rows] = torch.cat(parts).double()
    return scores


def _reweighted(table: Contingency, count: Tensor, total: int) -> Contingency:
    # count: (R, Z)
    row, col = (index.expand(len(count), -1) for index in (table.row, table.col))
    row_size, col_size = (
        count.new_zeros(len(count), len(size)).scatter_add_(-1, index, count)
        for index, size in ((row, table.row_size), (col, table.col_size))
    )
    return Contingency(row, col, count, row_size, col_size, total)


def as_contingency(labels: Any, clusters: Tensor | None) -> Any:
    """Convert the arguments of a clustering score, a table or labels and clusters, to a table."""
    if isinstance(labels, Contingency | SmoothedTable) and clusters is None:
        return labels
    if isinstance(labels, Contingency) or clusters is None:
        raise ValueError("wanted either a Contingency alone or two tensors, labels and clusters")
    return _counted(labels, clusters, keep_empty=True)


class ClusteringMetric(RowMetric):
    """Base class of metrics that keep the labels and clusters of every update; `score` scores their table.

    `interval` reports the uncertainty of the score for a fixed clustering. Chance raises scores of information and the
    accuracy of few items in a cell: their intervals are centered on the score less the bias of the jackknife, and those
    of information reach scores of tables with items in cells that the data do not show. They are refused where more
    than 3 % of the items are alone in their cell. Subclasses have the same states: in a MetricCollection they form one
    compute group and keep one copy. On several ranks each holds the labels and clusters of all, 16 bytes an item: pairs
    are counted by sorting them.

    Shape:
        - labels, clusters: ``(n,)``, integers, the class and the cluster of each item
    """

    higher_is_better = True
    is_biased = False
    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0

    labels: Tensor
    clusters: Tensor

    def __init__(self, **kwargs: Unpack[Options]) -> None:
        super().__init__(**kwargs)
        self.add_columns("labels", "clusters")

    function: Callable[..., Tensor]  # of a table: the score
    check_bias: Callable[[str, Tensor, Tensor], None] | None = None  # name, bias of resampled scores, their deviation

    def score(self, table: Contingency) -> Tensor:
        # ->  (...) float64
        """Compute the score of a table, or of a batch of tables."""
        return type(self).function(table)

    def update(self, labels: Tensor, clusters: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Append a batch. NaN and infinity are a ValueError: here on a CPU, else in `compute` (no synchronization).

        Shapes: labels, clusters: (N,) or (N, 1) integer or floating; ids, groups: (N,), for `interval`.
        """
        device = labels.device if isinstance(labels, Tensor) else self.device
        labels = as_labels("labels", as_tensor("labels", labels, device))
        clusters = as_labels("clusters", as_tensor("clusters", clusters, device))
        checks.check_consistent_length(labels=labels, clusters=clusters)
        if device.type == "cpu":
            check_finite(labels=labels, clusters=clusters)
        self.append_items({"labels": labels, "clusters": clusters}, **items)

    def update_options(self) -> dict[str, Any]:
        return {"update": type(self).update}

    def compute(self) -> Tensor:
        # ->  () float64
        if type(self).no_interval is Metric.no_interval:
            biased = type(self).__name__ if self.is_biased else ""
            options = self.item_names(), self.score, self.value_range(), biased, self.check_bias
            self._items = functools.partial(items_of, self.labels, self.clusters, *options)
        return self.score(as_contingency(self.labels, self.clusters))
