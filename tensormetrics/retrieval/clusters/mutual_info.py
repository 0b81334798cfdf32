"""Clustering scores from mutual information, with natural logarithms and float64 sums."""

from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.metric.base import Options
from ...core.native import gpu_kernels
from ..deterministic import distinct, halving_sum
from ..inputs import budget
from .contingency import ClusteringMetric, Contingency, SmoothedTable, as_contingency

Average = Literal["arithmetic", "geometric", "min", "max"]
AVERAGES: tuple[Average, ...] = get_args(Average)
EPS = torch.finfo(torch.float64).eps
MAX_PAIRS = 2**20  # of a class and a cluster, each of which a program of a kernel takes; beyond it sizes are counted


@takes_arrays
def mutual_info(labels: Tensor | Contingency, clusters: Tensor | None = None) -> Tensor:
    """Compute the mutual information of class and cluster, sum of c/n log(c n / (a b)) over the cells, in nats.

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    At least 0 (below 2.2e-16 counts as 0), higher is better; c is a cell's count, a and b the sizes of its class and
    its cluster. ValueError as `contingency`. Cover and Thomas, Elements of Information Theory, chapter 2,
    DOI 10.1002/047174882X.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> mutual_info(labels, clusters)
    tensor(0.2911, dtype=torch.float64)
    """
    return _information(as_contingency(labels, clusters))[0]


@takes_arrays
def expected_mutual_info(labels: Tensor | Contingency, clusters: Tensor | None = None) -> Tensor:
    """Compute the expectation of `mutual_info` over random labelings of the same class and cluster sizes, in nats.

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    Terms more than 12 standard deviations + 40 away from the mean of their hypergeometric distribution are left out;
    they are far below rounding. Time grows with the number of distinct pairs of sizes, at most 2 N. ValueError as
    `contingency`. Vinh, Epps and Bailey, JMLR 11, 2010, DOI 10.5555/1756006.1953024.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> expected_mutual_info(labels, clusters)
    tensor(0.1629, dtype=torch.float64)
    """
    table = as_contingency(labels, clusters)
    n = table.total
    if _uses_kernels(table) and len(table.row_size) * len(table.col_size) <= MAX_PAIRS:
        from ..search.kernels import clusters as kernels

        return kernels.expected_information(table.row_size, table.col_size, _log_factorials(n, table.count.device))
    (a, classes), (b, groups) = (distinct(size)[:2] for size in (table.row_size, table.col_size))
    a, b = torch.broadcast_tensors(a[..., :, None], b[..., None, :])
    mean = a.double() * b / n
    half_width = 12 * (mean * (n - a) * (n - b) / (n * max(n - 1, 1))).sqrt() + 40
    first = torch.maximum((a + b - n).clamp(min=1), (mean - half_width).floor().long())
    last = torch.minimum(torch.minimum(a, b), (mean + half_width).ceil().long())
    expected = _hypergeometric_sums(a.flatten(), b.flatten(), first.flatten(), last.flatten(), n).view(a.shape)
    return halving_sum(halving_sum(expected * classes[..., :, None] * groups[..., None, :]))


@takes_arrays
def normalized_mutual_info(
    labels: Tensor | Contingency, clusters: Tensor | None = None, *, average: Average = "arithmetic"
) -> Tensor:
    """Divide mutual information by the `average` of both entropies, "arithmetic", "geometric", "min" or "max".

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    In [0, 1], higher is better; 1 when both have one cluster or N = 0, 0 when one of them has. ValueError as
    `contingency`, and for another average. Strehl and Ghosh, JMLR 3, 2002, DOI 10.1162/153244303321897735.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> normalized_mutual_info(labels, clusters)
    tensor(0.4325, dtype=torch.float64)
    """
    checks.check_choice("average", average, AVERAGES)
    info, class_entropy, cluster_entropy = _information(as_contingency(labels, clusters))
    ratio = info / _average(class_entropy, cluster_entropy, average)
    return ratio.nan_to_num(0.0).masked_fill((info == class_entropy) & (info == cluster_entropy), 1.0)


@takes_arrays
def adjusted_mutual_info(
    labels: Tensor | Contingency, clusters: Tensor | None = None, *, average: Average = "arithmetic"
) -> Tensor:
    """Compute mutual information adjusted for chance: (MI - E[MI]) / (average entropy - E[MI]).

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    1 for equal partitions, close to 0 for independent ones, higher is better; 1 when both have one cluster
    or N = 0, 0 when one of them has. `average` as in `normalized_mutual_info`. ValueError as there. Vinh, Epps and
    Bailey, JMLR 11, 2010, DOI 10.5555/1756006.1953024.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> adjusted_mutual_info(labels, clusters)
    tensor(0.2513, dtype=torch.float64)
    """
    checks.check_choice("average", average, AVERAGES)
    table = as_contingency(labels, clusters)
    info, class_entropy, cluster_entropy = _information(table)
    expected = expected_mutual_info(table)
    denominator = _average(class_entropy, cluster_entropy, average) - expected
    value = _bounded_from_zero(info - expected) / _bounded_from_zero(denominator)
    value = value.masked_fill((class_entropy == 0) | (cluster_entropy == 0), 0.0)
    return value.masked_fill((info == class_entropy) & (info == cluster_entropy), 1.0)


@takes_arrays
def homogeneity(labels: Tensor | Contingency, clusters: Tensor | None = None) -> Tensor:
    """Divide mutual information by the entropy of the classes: 1 if every cluster holds members of one class only.

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    In [0, 1], higher is better; 1 when there is one class or N = 0. ValueError as `contingency`. Rosenberg and
    Hirschberg, V-measure, EMNLP 2007, https://aclanthology.org/D07-1043.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> homogeneity(labels, clusters)
    tensor(0.4325, dtype=torch.float64)
    """
    info, class_entropy, _ = _information(as_contingency(labels, clusters))
    return _ratio(info, class_entropy)


@takes_arrays
def completeness(labels: Tensor | Contingency, clusters: Tensor | None = None) -> Tensor:
    """Divide mutual information by the entropy of the clusters: 1 if every class lies in one cluster.

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    In [0, 1], higher is better; 1 when there is one cluster or N = 0. Reference and errors as for `homogeneity`.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> completeness(labels, clusters)
    tensor(0.4325, dtype=torch.float64)
    """
    info, _, cluster_entropy = _information(as_contingency(labels, clusters))
    return _ratio(info, cluster_entropy)


@takes_arrays
def v_measure(labels: Tensor | Contingency, clusters: Tensor | None = None, *, beta: float = 1.0) -> Tensor:
    """Compute the weighted harmonic mean (1 + beta) h c / (beta h + c) of homogeneity h and completeness c.

    Shapes: labels, clusters: (..., N), or a Contingency alone -> (...) float64.

    In [0, 1], higher is better; 0 when h or c is 0. beta above 1 weights completeness more. ValueError for beta
    < 0 or infinite.

    >>> labels, clusters = torch.tensor([0, 0, 1, 1, 1]), torch.tensor([5, 5, 7, 7, 5])
    >>> v_measure(labels, clusters)
    tensor(0.4325, dtype=torch.float64)
    """
    _check_beta(beta)
    info, *entropies = _information(as_contingency(labels, clusters))
    h, c = (_ratio(info, entropy) for entropy in entropies)
    return torch.where(h * c > 0, (1 + beta) * h * c / (beta * h + c), 0.0)


class AveragedInfo(ClusteringMetric):
    """Base class of mutual information that is divided by an average of entropies."""

    def __init__(self, average: Average = "arithmetic", **kwargs: Unpack[Options]) -> None:
        super().__init__(**kwargs)
        checks.check_choice("average", average, AVERAGES)
        self.average = average

    def score(self, table: Contingency) -> Tensor:
        # ->  (...) float64
        return type(self).function(table, average=self.average)


class NormalizedMutualInfo(AveragedInfo):
    """Normalized mutual information (NMI) of a clustering, in [0, 1], not adjusted for chance.

    Formula: `normalized_mutual_info`.

    Args:
        average: Divisor, a mean of both entropies: "arithmetic", "geometric", "min" or "max".
    """

    is_biased = True
    function = staticmethod(normalized_mutual_info)


class AdjustedMutualInfo(AveragedInfo):
    """Adjusted mutual information (AMI) of a clustering: 1 for equal partitions, about 0 by chance.

    Formula: `adjusted_mutual_info`. It has no interval: the expectation under chance does not account for weights, and
    simulated intervals missed the true value for many clusters.

    Args:
        average: Divisor, a mean of both entropies: "arithmetic", "geometric", "min" or "max".
    """

    no_interval = (
        "what chance gives is defined for whole counts, and with that of the data 95 % intervals of 10 clusters of 100 "
        "items hold the truth in less than 70 % of data sets; take NormalizedMutualInfo"
    )
    plot_lower_bound = None  # negative if partitions agree less than by chance
    function = staticmethod(adjusted_mutual_info)


class Homogeneity(ClusteringMetric):
    """Homogeneity of a clustering, in [0, 1]: 1 if every cluster holds members of one class only.

    Formula: `homogeneity`.
    """

    is_biased = True
    function = staticmethod(homogeneity)


class Completeness(ClusteringMetric):
    """Completeness of a clustering, in [0, 1]: 1 if every class lies in one cluster.

    Formula: `completeness`.
    """

    is_biased = True
    function = staticmethod(completeness)


class VMeasure(ClusteringMetric):
    """V-measure: the harmonic mean of homogeneity and completeness, in [0, 1].

    Formula: `v_measure`.

    Args:
        beta: Weight of completeness; above 1 it counts more than homogeneity.
    """

    is_biased = True

    def __init__(self, beta: float = 1.0, **kwargs: Unpack[Options]) -> None:
        super().__init__(**kwargs)
        _check_beta(beta)
        self.beta = beta

    def score(self, table: Contingency) -> Tensor:
        # ->  (...) float64
        return v_measure(table, beta=self.beta)


def _information(table: Contingency | SmoothedTable) -> tuple[Tensor, Tensor, Tensor]:
    # ->  (...), (...), (...): mutual information, entropy of the classes, entropy of the clusters
    # All three sum over the cells, with quotients of integers that are exact below 2^53: if one partition refines the
    # other, the information then has the same bits as the entropy that it equals.
    if isinstance(table, SmoothedTable):
        return _smoothed_information(*table)
    if _uses_kernels(table):
        from ..search.kernels import clusters as kernels

        info, *entropies = kernels.information(*table)
        return torch.nn.functional.threshold(info, EPS, 0.0), *entropies
    count = table.count.double()
    n = count.new_full((), table.total)  # a Python number divided by a tensor multiplies with rounded reciprocals
    a = table.row_size.gather(-1, table.row).double()
    b = table.col_size.gather(-1, table.col).double()
    surprise = torch.stack([count * n / (a * b), n / a, n / b]).log()
    info, *entropies = halving_sum((count / n * surprise).where(count > 0, 0.0))
    return info.where(info > EPS, 0.0), *entropies


def _smoothed_information(table: Contingency, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # shares: (R,)  ->  (R,) each, as `_information`
    is_kept, sizes, entropies = (table.count > 1).double(), (table.row_size, table.col_size), []
    kept, num_rare = table.count * is_kept, len(sizes[0]) * len(sizes[1]) - int(is_kept.sum())
    kept, share = kept / kept.sum(), shares[:, None] * (num_rare > 0)
    for index, size, other in zip((table.row, table.col), sizes, sizes[::-1], strict=True):
        sums = kept.new_zeros(2, len(size)).index_add_(1, index, torch.stack([kept, is_kept]))
        rare = (len(other) - sums[1]) / max(num_rare, 1)
        entropies.append(torch.special.entr((1 - share) * sums[0] + share * rare).sum(1))
    of_kept = (1 - share) * torch.special.entr(kept).sum() + torch.special.entr(1 - share)
    joint = of_kept + num_rare * torch.special.entr(share / max(num_rare, 1))
    return (entropies[0] + entropies[1] - joint[:, 0]).clamp(min=0), entropies[0], entropies[1]


def _uses_kernels(table: Contingency) -> bool:
    # of the counts of one table
    is_table = table.count.ndim == 1 and not table.count.is_floating_point() and len(table.count) > 0
    return is_table and gpu_kernels.can_use("clustering scores", table.count.device)


def _log_factorials(n: int, device: torch.device) -> Tensor:
    # ->  (n + 1,) float64
    return torch.arange(1, n + 2, dtype=torch.float64, device=device).lgamma()


def _ratio(info: Tensor, entropy: Tensor) -> Tensor:
    return torch.where(entropy == 0, 1.0, info / entropy)


def _average(x: Tensor, y: Tensor, average: Average) -> Tensor:
    if average == "arithmetic":
        return (x + y) / 2
    if average == "geometric":
        return (x * y).sqrt()
    return torch.minimum(x, y) if average == "min" else torch.maximum(x, y)


def _bounded_from_zero(x: Tensor) -> Tensor:
    return torch.where(x < 0, x.clamp(max=-EPS), x.clamp(min=EPS))


def _check_beta(beta: float) -> None:
    checks.check_number("beta", beta, "a finite number >= 0", lambda x: 0 <= x < torch.inf)


def _hypergeometric_sums(a: Tensor, b: Tensor, first: Tensor, last: Tensor, n: int) -> Tensor:
    # a, b, first, last: (P,) int64  ->  (P,): sum of k/n log(n k / (a b)) P(K = k) over first <= k <= last, with K the
    # number of marked items among a items drawn from n, of which b are marked
    log_factorial = _log_factorials(n, a.device)
    constant = (
        log_factorial[a] + log_factorial[b] + log_factorial[n - a] + log_factorial[n - b] - log_factorial[n : n + 1]
    )
    terms = (last - first + 1).clamp(min=0)
    offset = torch.nn.functional.pad(terms.cumsum(0), (1, 0))
    # Chunks contain complete pairs of sizes, so that no sum depends on the budget. Synchronizes with the device.
    size, total = max(budget(None, a.device) // 2**10, 1), int(offset[-1])
    chunks = [(slice(0, len(a)), slice(0, total))]
    if total == 0:
        return torch.zeros(len(a), dtype=torch.float64, device=a.device)
    if total > size:
        bounds = torch.searchsorted(offset, torch.arange(0, total, size, device=a.device))
        bounds = torch.nn.functional.pad(bounds, (0, 1), value=len(a)).unique_consecutive()
        chunks = [
            (slice(*pair_slice), slice(*term_slice))
            for pair_slice, term_slice in zip(*(pairwise(x.tolist()) for x in (bounds, offset[bounds])), strict=True)
        ]
    first_k, rate = first - offset[:-1], n / (a.double() * b)
    sums = []
    for pair_slice, term_slice in chunks:
        pair_index = torch.repeat_interleave(terms[pair_slice], output_size=term_slice.stop - term_slice.start)
        k, left, right, neither, log_weight, log_rate = (
            values[pair_slice].index_select(0, pair_index) for values in (first_k, a, b, n - a - b, constant, rate)
        )
        k += torch.arange(term_slice.start, term_slice.stop, device=a.device)
        weights = log_factorial[torch.stack([k, left - k, right - k, neither + k])]
        for weight in weights:
            log_weight -= weight
        k = k.double()
        value = (k * log_rate).log_().mul_(k / n).mul_(log_weight.exp_())
        sums.append(torch.segment_reduce(value, "sum", lengths=terms[pair_slice]))
    return torch.cat(sums)
