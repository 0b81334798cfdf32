"""Coreference: two clusterings of the mentions of a document, and the scores that papers report."""

from collections.abc import Hashable, Iterable, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.resampling.weights import ResamplingUnits
from ...core.text.joining import join_paths
from ..tensors import _lengths, policy
from ..tensors._groups import group_rows
from ..tensors._lengths import in_chunks, total
from ..tensors.normalizers import normalize
from ..tensors.reduction import CountMetric
from ._tables import check_tensors, sizes
from .clusters import assigned, read_ids, used_width
from .conll import read_coref_file

REPEATED = ("raise", "first", "largest")
METRICS = ("mentions", "muc", "b_cubed", "ceaf_m", "ceaf_e", "blanc", "lea", "conll")
# The counts of a document: numerators, or links (c), of cells; denominators, or links, of predicted (a) and reference
# (b) clusters.
_COUNTS = (
    *("shared", "mentions_a", "mentions_b", "clusters_a", "clusters_b", "muc", "b_cubed_a", "b_cubed_b"),
    *("ceaf_m", "ceaf_e", "lea_a", "lea_b", "link_c", "link_a", "link_b", "other_c", "other_a", "other_b"),
)


class CorefScores(CountMetric):
    """Precision, recall and F1 of coreference, keys `<metric>-precision` and so on, in [0, 1]; higher is better.

    `mentions` detected; MUC (Vilain et al. 1995); B-cubed (Bagga, Baldwin 1998); CEAF-m and CEAF-e (Luo 2005,
    doi:10.3115/1220575.1220579); BLANC with predicted mentions (Luo et al. 2014, doi:10.3115/v1/P14-2005); LEA
    (Moosavi, Strube 2016, doi:10.18653/v1/P16-1060); `conll-f1`, the mean of the F1 of MUC, B-cubed and CEAF-e.
    "micro" sums numerators and denominators over documents, as CoNLL-2012 does.

    Args:
        metrics: Names of the scores, by default all.
        singletons: "keep", or "drop" predicted and reference clusters of one mention first.
        zero_division: Value of a ratio 0 / 0, a number or "agree", 1 if prediction and reference are empty, else 0.
        repeated_mentions: Cluster of a mention that is in several: "raise" an error, "first", or "largest", the one
            with the most mentions, the first among equals.

    >>> metric = CorefScores(["muc", "conll"])
    >>> metric.update_clusters([[["Ann", "she"], ["it", "car"]]], [[["Ann", "she", "her"], ["it", "car"]]])
    >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
    {'muc-precision': 1.0, 'muc-recall': 0.667, 'muc-f1': 0.8, 'conll-f1': 0.833}
    """

    def __init__(
        self,
        metrics: Sequence[str] = METRICS,
        average: str = "micro",
        singletons: str = "keep",
        zero_division: float | str = 0.0,
        repeated_mentions: str = "raise",
        **kwargs: Any,
    ) -> None:
        for metric in (metrics := checks.as_list("metrics", metrics)):
            checks.check_choice("metrics", metric, METRICS)
        checks.check_choice("singletons", singletons, ("keep", "drop"))
        checks.check_choice("repeated_mentions", repeated_mentions, REPEATED)
        policy.check_zero_division(zero_division)
        self.metrics, self.singletons, self.zero_division = tuple(metrics), singletons, zero_division
        self.repeated_mentions = repeated_mentions
        super().__init__(len(_COUNTS), average, **kwargs)

    update_of_lists = "update_clusters"

    def update(self, pred_ids: Tensor, ref_ids: Tensor, **items: Unpack[ResamplingUnits]) -> None:
        """Add documents of W mentions: predicted and reference cluster of each mention, negative for none.

        Shapes: pred_ids, ref_ids: (..., W) int. Lists of clusters go to `update_clusters`.
        """
        check_tensors("the numbers of clusters", "clusters", pred_ids=pred_ids, ref_ids=ref_ids)
        tables = read_ids(pred_ids=pred_ids, ref_ids=ref_ids)
        lengths = torch.maximum(*map(used_width, tables))
        self.add_documents(in_chunks(self._count, tables, (lengths, lengths), total), **items)

    def update_clusters(
        self,
        preds: Sequence[Iterable[Iterable[Hashable]]] | str | PathLike,
        refs: Sequence[Iterable[Iterable[Hashable]]] | str | PathLike,
        names: Sequence[str] | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents as collections of clusters of hashable mentions. Repeats within a cluster count once.

        Or two files, of CoNLL-2012 or JSON, whose documents are joined by name, or else by position; their words must
        be equal. Errors report the documents by `names`, instead of by number.
        """
        if isinstance(preds, str | PathLike):
            preds, refs = join_paths(preds, refs, read_coref_file, "document")
            names = [str(name) for name, _ in refs]
            preds, refs = ([clusters for _, clusters in documents] for documents in (preds, refs))
        named: dict[str, Any] = {"preds": preds, "refs": refs}
        checks.check_consistent_length(**named)
        if names is not None:
            checks.check_consistent_length(preds=named["preds"], names=names)
        labels = [*map(repr, range(len(named["preds"])) if names is None else names)]
        cluster_maps = [
            [_cluster_of(d, f"{name}: document {i}", self.repeated_mentions) for i, d in zip(labels, side, strict=True)]
            for name, side in named.items()
        ]
        mentions = [(pred | ref).keys() for pred, ref in zip(*cluster_maps, strict=True)]
        tables = [
            torch.tensor(
                [of.get(mention, -1) for of, row in zip(maps, mentions, strict=True) for mention in row], device="cpu"
            ).long()
            for maps in cluster_maps
        ]
        lengths = sizes(mentions)
        self.add_update(
            in_chunks(self._count, tables, (lengths, lengths), total, flat=True, device=self.device), **items
        )

    def _count(self, pred_ids: Tensor, ref_ids: Tensor, lengths: Tensor, _: Tensor) -> Tensor:
        # pred_ids, ref_ids: (D, W)  lengths: (D,)  ->  (D, 18)
        ids = torch.stack([pred_ids, ref_ids]).masked_fill(~_lengths.mask(lengths, pred_ids.shape[1]), -1)
        if self.singletons == "drop":
            cluster, sizes = _clusters(ids)
            ids = ids.where(sizes.gather(-1, cluster.clamp(min=0)) > 1, -1)
        return _count(ids)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 18)  ->  name: (...)
        n = dict(zip(_COUNTS, counts.unbind(-1), strict=True))
        size, clusters = (n["mentions_a"], n["mentions_b"]), (n["clusters_a"], n["clusters_b"])
        parts = {
            "mentions": (n["shared"], n["shared"], *size),
            "muc": (n["muc"], n["muc"], size[0] - clusters[0], size[1] - clusters[1]),
            "b_cubed": (n["b_cubed_a"], n["b_cubed_b"], *size),
            "ceaf_m": (n["ceaf_m"], n["ceaf_m"], *size),
            "ceaf_e": (n["ceaf_e"], n["ceaf_e"], *clusters),
            "lea": (n["lea_a"], n["lea_b"], *size),
        }
        scores = {metric: _scores(*part, self.zero_division) for metric, part in parts.items()}
        scores["blanc"] = _blanc(n, scores["mentions"])
        keys = ("precision", "recall", "f1")
        named = {f"{metric}-{key}": scores[metric][i] for metric in METRICS[:-1] for i, key in enumerate(keys)}
        named["conll-f1"] = (named["muc-f1"] + named["b_cubed-f1"] + named["ceaf_e-f1"]) / 3
        return {name: score for name, score in named.items() if name.split("-")[0] in self.metrics}


def _cluster_of(clusters: Iterable[Iterable[Hashable]], where: str, repeated: str) -> dict[Hashable, int]:
    """Return the cluster index of each mention."""
    clusters = getattr(clusters, "entities", clusters)
    if not isinstance(clusters, Iterable):
        raise TypeError(f"{where}: got {clusters!r:.60}, wanted a collection of clusters")
    members = [_mentions_of(cluster, where) for cluster in clusters]
    order = list(range(len(members)))
    if repeated == "largest":
        order.sort(key=lambda index: -len(members[index]))
    cluster_of: dict[Hashable, int] = {}
    for index in order:
        for mention in members[index]:
            if cluster_of.setdefault(mention, index) != index and repeated == "raise":
                raise ValueError(
                    f"{where}: mention {mention!r} is in two clusters; repeated_mentions='first' or 'largest' chooses "
                    "one of them"
                )
    return cluster_of


def _mentions_of(cluster: Iterable[Hashable], where: str) -> dict[Hashable, None]:
    mentions = getattr(cluster, "mentions", cluster)
    if isinstance(mentions, str) or not isinstance(mentions, Iterable):
        raise TypeError(f"{where}: got the cluster {cluster!r:.60}, wanted a collection of mentions")
    unique: dict[Hashable, None] = {}
    for mention in mentions:
        try:
            key: Any = tuple(mention) if isinstance(mention, list) and mention else mention
            unique[key] = None
        except TypeError as error:
            raise TypeError(f"{where}: got the mention {mention!r:.60}, wanted a hashable one") from error
    return unique


def _clusters(ids: Tensor) -> tuple[Tensor, Tensor]:
    # ids: (2, B, W)  ->  cluster of each mention (2, B, W), numbered from 0, -1 for none; sizes of clusters 0, 1, ...
    # (2, B, W)
    ids = ids.clamp(min=-1)
    cluster = group_rows(ids[..., None]).ids - (ids < 0).any(-1, keepdim=True).long()
    return cluster, torch.zeros_like(ids).scatter_add(-1, cluster.clamp(min=0), (ids >= 0).long())


def _links(sizes: Tensor) -> Tensor:
    return sizes * (sizes - 1) // 2


def _count(ids: Tensor) -> Tensor:
    # ids: (2, B, W) of predicted and reference clusters  ->  (B, 18)
    cluster, sizes = _clusters(ids)
    mentions, clusters = sizes.sum(-1), (sizes > 0).sum(-1)  # (2, B)
    # Cells of the contingency table, each at the first of its mentions.
    cells, earlier, order = group_rows(cluster.movedim(0, -1))
    cell, cluster = cells.gather(-1, order), cluster.gather(-1, order.expand_as(cluster))
    both = (cluster >= 0).all(0)
    c = torch.zeros_like(cell).scatter_add(-1, cell, both.long()).gather(-1, cell)
    c = c * (both & (earlier.gather(-1, order) == 0))
    cluster = cluster.clamp(min=0)
    shared = torch.zeros_like(sizes).scatter_add(-1, cluster, c.expand_as(sizes))  # (2, B, W) mentions of each cluster
    size = sizes.gather(-1, cluster).clamp(min=1).double()
    less, total = c - 1, c.sum(-1)
    links = _links(torch.cat([c[None], sizes, shared])).sum(-1)  # (5, B)
    pairs = _links(torch.cat([total[None], mentions]))  # (3, B)
    matched = assigned(
        torch.stack([c.double(), 2 * c / (size[0] + size[1])]).flatten(0, 1),
        *cluster.repeat(1, 2, 1),
        *clusters.repeat(1, 2),
    ).unflatten(0, (2, -1))
    counts = {
        "shared": total[None],
        "mentions": mentions,
        "clusters": clusters,
        "muc": less.clamp(min=0).sum(-1)[None],
        "b_cubed": (c * c / size).sum(-1),
        "ceaf": matched,
        "lea": (c * less / (size - 1).clamp(min=1) + (size == 1).all(0).double() * c).sum(-1),
        "link": links[:3],
        "other_c": (pairs[0] - links[3] - links[4] + links[0])[None],
        "other": pairs[1:] - links[1:3],
    }
    return torch.cat([*counts.values()]).mT.double()  # in the order of `_COUNTS`


def _scores(
    num_a: Tensor, num_b: Tensor, den_a: Tensor, den_b: Tensor, zero_division: float | str
) -> tuple[Tensor, Tensor, Tensor]:
    # precision, recall, F1: (...)
    precision = normalize(num_a, den_a, den_b, "precision", zero_division)
    recall = normalize(num_b, den_a, den_b, "recall", zero_division)
    if num_a is num_b:
        return precision, recall, normalize(num_a, den_a, den_b, "f1", zero_division)
    total = precision + recall
    return precision, recall, 2 * precision * recall / total.where(total != 0, 1)


def _blanc(n: dict[str, Tensor], mentions: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Average over links and non-links; a class without reference links is ignored, as in the CoNLL scorer."""
    link, other = (_scores(n[f"{k}_c"], n[f"{k}_c"], n[f"{k}_a"], n[f"{k}_b"], 0.0) for k in ("link", "other"))
    has_link, has_other = n["link_b"] > 0, n["other_b"] > 0
    no_pred = (n["link_a"] == 0) & (n["other_a"] == 0)
    precision, recall, f1 = (
        torch.where(has_link & has_other, (x + y) / 2, torch.where(has_link, x, torch.where(has_other, y, m * no_pred)))
        for x, y, m in zip(link, other, mentions, strict=True)
    )
    return precision, recall, f1
