"""Rankings: predictions in order of rank against a set of reference items with gains."""

from collections.abc import Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import _checks
from ..assignment import linear_sum_assignment
from . import _lengths, policy
from ._pairs import join, places
from .columns import check_collection
from .derive import as_list
from .metric import StructuredMetric
from .node_set import Candidates, Collection, Ragged, alike
from .normalizers import normalize
from .overlap import numbered
from .reduction import CountMetric

AT_K = ("precision", "recall", "hit", "ap", "ndcg")
WHOLE = ("ap", "ndcg", "r_precision", "rr", "ap_metametric")
CUT = 10  # of metametric's average precision


class RankingScores(CountMetric):
    """Means over queries of the scores of a ranking, in [0, 1]; higher is better. Textbook forms, as in trec_eval.

    With h the hits in order of rank (a repeated prediction is a miss), o their running sum and m the reference items:
    `precision@k` o_k / k, `recall@k` o_k / m, `hit@k` [o_k > 0], `r_precision` o_m / m, `rr` one over the rank of the
    first hit, `ap@k` the sum of h_i o_i / i up to k over m, `ndcg@k` the sum of gain_i / log2(i + 1) up to k over the
    same sum for the best order. `ap` and `ndcg` see the whole ranking. On request `ap_metametric`, as the package of
    that name has it: the sum of P_k (R_k - R_(k-1)) up to 10, with P_k = o_k / min(k, n) of n predictions and R_k =
    o_k / min(k, m); it may exceed 1. Without reference items what is over m is `zero_division`, see `normalize`; the
    mean leaves out NaN. Other arguments: see `CountMetric`.
    """

    def __init__(
        self,
        ks: Sequence[int] = (1, 5, 10),
        scores: Sequence[str] = (*AT_K, "r_precision", "rr"),
        zero_division: float | str = 0.0,
        **kwargs: Any,
    ) -> None:
        self.ks = tuple(_checks.integer_at_least("ks", k, 1) for k in ks)
        for score in scores:
            _checks.one_of("scores", score, tuple(dict.fromkeys(AT_K + WHOLE)))
        policy.check_zero_division(zero_division)
        self.zero_division = zero_division
        self.names = tuple(f"{score}@{k}" for score in scores if score in AT_K for k in self.ks)
        self.names += tuple(score for score in scores if score in WHOLE)
        super().__init__(len(self.names), "macro", **kwargs)

    def update(
        self,
        pred_keys: Tensor,  # (..., N) int, best first
        ref_keys: Tensor,  # (..., M) int, distinct
        n_pred: Tensor | None = None,  # (...)
        n_ref: Tensor | None = None,  # (...)
        ref_gain: Tensor | None = None,  # (..., M), default 1
    ) -> None:
        """Add queries."""
        _checks.integral("pred_keys", pred_keys)
        _checks.integral("ref_keys", ref_keys)
        *batch, n = pred_keys.shape
        _checks.shape("ref_keys", ref_keys, *batch, "M")
        m = ref_keys.shape[-1]
        _checks.same_device(pred_keys=pred_keys, ref_keys=ref_keys, ref_gain=ref_gain)
        n_pred = _lengths.full_or_clamped("n_pred", n_pred, pred_keys, batch, n)
        n_ref = _lengths.full_or_clamped("n_ref", n_ref, ref_keys, batch, m)
        if ref_gain is None:
            ref_gain = torch.ones_like(ref_keys)
        _checks.shape("ref_gain", ref_gain, *ref_keys.shape)
        inside = _lengths.mask(n_ref, m)
        ref_gain = ref_gain.double().where(inside, 0)

        # A hit is the first prediction of a key that the reference has too.
        key = numbered(torch.cat([pred_keys.long(), ref_keys.long()], -1)[..., None])
        pred_key, ref_key = key[..., :n], key[..., n:]
        wanted = torch.zeros_like(key).scatter_add(-1, ref_key, inside.long())
        gains = torch.zeros_like(key, dtype=torch.float64).scatter_add(-1, ref_key, ref_gain)
        rank = torch.arange(n, device=key.device).expand_as(pred_key).where(_lengths.mask(n_pred, n), n)
        first = torch.full_like(key, n).scatter_reduce(-1, pred_key, rank, "amin").gather(-1, pred_key)
        hit = (first == rank) & (rank < n) & (wanted.gather(-1, pred_key) > 0)
        gained = gains.gather(-1, pred_key) * hit
        ideal = ref_gain.sort(descending=True, dim=-1).values
        self._add(hit.double().cumsum(-1), gained, ideal, n_pred, n_ref)

    def update_rankings(
        self,
        ranking: "Ranking",
        preds: Sequence[Sequence[Any]],
        refs: Sequence[Any],
        gains: Sequence[Sequence[float]] | None = None,
    ) -> None:
        """Add queries of objects: the predictions, best first, the references and, if wanted, their gains in order.

        Items are compared by the inner metric of `dsl.ranking[max_k](inner)`: o_k is the best one-to-one overlap of the
        first k predictions with the references, and h_k = o_k - o_(k-1) may lie between 0 and 1. ValueError for a k
        above max_k, and for gains with an inner metric that is no equality.
        """
        deepest = max((int(name.partition("@")[2] or 0) for name in self.names), default=0)
        if deepest > ranking.max_k:
            raise ValueError(f"ks: got {deepest} above max_k {ranking.max_k}; write ranking[{deepest}]")
        queries = ranking(preds, refs, gains)
        add = self._wrap_update(self._add)  # so that it counts as an update, and leaves no trace where it fails
        add(*(part.to(self.device) for part in queries))

    def _add(self, hits: Tensor, gained: Tensor, ideal: Tensor, n_pred: Tensor, n_ref: Tensor) -> None:
        # hits, gained: (..., N)  ideal: (..., M)  n_pred, n_ref: (...)
        scores = _scores(hits, gained, ideal, n_pred, n_ref, self.names, self.zero_division)
        self.add_documents(torch.stack([scores[name].expand(n_ref.shape) for name in self.names], -1))

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., K) the scores of a query themselves  ->  name: (...)
        return dict(zip(self.names, counts.unbind(-1), strict=True))


class Queries(NamedTuple):
    """Rankings as numbers."""

    hits: Tensor  # (B, N) float64: the overlap of the first 1, 2, ... predictions with the references
    gained: Tensor  # (B, N) float64
    ideal: Tensor  # (B, M) float64 gains, largest first
    n_pred: Tensor  # (B,)
    n_ref: Tensor  # (B,)


class Ranking(nn.Module):
    """Lists of objects in order of rank against collections of references; made by `dsl.ranking[max_k](inner)`.

    Predictions beyond max_k are not looked at. `items` is the metric of a collection of items.
    """

    def __init__(self, items: StructuredMetric, max_k: int) -> None:
        super().__init__()
        self.items, self.max_k = items, _checks.integer_at_least("max_k", max_k, 1)

    def forward(
        self, preds: Sequence[Sequence[Any]], refs: Sequence[Any], gains: Sequence[Sequence[float]] | None = None
    ) -> Queries:
        """B queries, read together; gains stand in the order of the references, default 1."""
        _checks.same_length(preds=preds, refs=refs)
        size, node, device = len(preds), self.items.node(), self.items.device
        if gains is not None and not node.inner.equality:
            raise ValueError(
                "gains: got some with an inner metric that is no equality, and so does not say what a part of a gain "
                "is worth; leave them out, or write dsl.discrete[...]"
            )
        check_collection(preds, "preds[{}]".format)
        for number, pred in enumerate(preds):
            if isinstance(pred, Set):
                raise TypeError(f"preds[{number}]: got a {type(pred).__name__}, wanted a list, best first")
        cut = [as_list(pred)[: self.max_k] for pred in preds]

        def where(row: int) -> str:
            return f"preds[{row}]" if row < size else f"refs[{row - size}]"

        rows = node.encode([*cut, *refs], size, where, device)
        n_pred, n_ref = rows.count[:size], rows.count[size:]
        gain = _flat_gains(gains, n_ref)
        ideal = torch.zeros(size, _most(n_ref), dtype=gain.dtype, device=device)
        ideal = ideal.masked_scatter(_lengths.mask(n_ref, ideal.shape[-1]), gain).sort(descending=True, dim=-1).values
        if node.inner.equality:
            hit, gained = _equal_hits(rows, size, gain)
            return Queries(hit.cumsum(-1), gained, ideal, n_pred, n_ref)
        hits = _prefix_overlaps(node, rows, size)
        return Queries(hits, nn.functional.pad(hits, (1, 0)).diff(dim=-1), ideal, n_pred, n_ref)


def _flat_gains(gains: Sequence[Sequence[float]] | None, n_ref: Tensor) -> Tensor:
    # n_ref: (B,)  ->  (n_ref.sum(),) float64
    if gains is None:
        return torch.ones(int(n_ref.sum()), dtype=torch.float64, device=n_ref.device)
    _checks.same_length(gains=gains, refs=n_ref)
    for number, (own, wanted) in enumerate(zip(gains, n_ref.tolist(), strict=True)):
        if len(own) != wanted:
            raise ValueError(f"gains[{number}]: got {len(own)} numbers, wanted one for each of {wanted} references")
    return torch.tensor(list(chain.from_iterable(gains)), dtype=torch.float64, device=n_ref.device)


def _equal_hits(rows: Ragged, size: int, gain: Tensor) -> tuple[Tensor, Tensor]:
    # gain: (references,)  ->  hit, gained (B, N) float64
    """Of equal items the n-th prediction stands for the n-th reference."""
    row = torch.repeat_interleave(rows.count)
    n = int(rows.count[:size].sum())
    _, block = (row % max(size, 1) * rows.key.size + rows.key.ids).unique(return_inverse=True)
    sides = block.split([n, len(row) - n])
    times = [places(side, torch.arange(len(side), device=row.device))[0] for side in sides]
    a, b = join(*(side * len(row) + before for side, before in zip(sides, times, strict=True)))
    hit = gain.new_zeros(size, _most(rows.count[:size]))
    place = row[a], a - rows.start[row[a]]
    return hit.index_put(place, torch.ones_like(gain[b])), hit.index_put(place, gain[b])


def _prefix_overlaps(node: Collection, rows: Ragged, size: int) -> Tensor:
    # ->  (B, N) float64
    i = torch.arange(size, device=rows.count.device)
    n, m = rows.count[:size], rows.count[size:]
    prefix = torch.arange(1, _most(n) + 1, device=i.device)
    value = torch.zeros(size, len(prefix), dtype=torch.float64, device=i.device)
    for part in alike(n, m):
        sides = i[part], i[part] + size
        gain = node.dense(rows, Candidates.of(rows, *sides), *sides).clamp(min=0)  # (P, N', M')
        height = gain.shape[-2]
        problems = gain[:, None].expand(-1, height, -1, -1)  # read in place, not copied
        lengths = torch.minimum(prefix[:height], n[part, None])
        solution = linear_sum_assignment(
            problems, maximize=True, row_lengths=lengths, col_lengths=m[part, None].expand_as(lengths), check=False
        )
        value[part] = nn.functional.pad(solution.cost, (1, 0))[:, prefix.clamp(max=height)]
    return value


def _most(count: Tensor) -> int:
    # count: (B,)
    return int(count.max()) if len(count) else 0


def _scores(
    hits: Tensor,  # (..., N) their running sum, whose steps are 0 or 1, or between
    gained: Tensor,  # (..., N)
    ideal: Tensor,  # (..., M) gains, largest first
    n_pred: Tensor,  # (...)
    n_ref: Tensor,  # (...)
    names: Sequence[str],
    zero_division: float | str,
) -> dict[str, Tensor]:  # name: (...)
    *_, n = hits.shape
    rank = torch.arange(1, n + 1, device=hits.device, dtype=hits.dtype)
    from_none = nn.functional.pad(hits, (1, 0))
    hit = from_none.diff(dim=-1)

    def over(numerator: Tensor, denominator: Tensor) -> Tensor:
        return normalize(numerator, n_pred, denominator, "recall", zero_division)

    def discounted(gain: Tensor) -> Tensor:
        return (gain / torch.arange(2, gain.shape[-1] + 2, device=gain.device, dtype=gain.dtype).log2()).sum(-1)

    def score(name: str, k: int) -> Tensor:
        found = from_none[..., min(k, n)]
        if name == "precision":
            return found / k
        if name == "recall":
            return over(found, n_ref)
        if name == "hit":
            return (found > 0).to(hit.dtype)
        if name == "ap":
            return over((hit * hits / rank)[..., :k].sum(-1), n_ref)
        if name == "ndcg":
            return over(discounted(gained[..., :k]), discounted(ideal[..., :k]))
        if name == "rr":
            return ((from_none > 0).to(hit.dtype).diff(dim=-1) / rank).sum(-1)
        if name == "ap_metametric":
            cut = torch.arange(1, CUT + 1, device=hit.device)
            so_far = nn.functional.pad(hit, (0, CUT))[..., :CUT].cumsum(-1)
            p, r = (so_far / torch.minimum(cut, most[..., None]).clamp(min=1) for most in (n_pred, n_ref))
            return over((p * r.diff(dim=-1, prepend=torch.zeros_like(r[..., :1]))).sum(-1), (n_ref > 0).to(hit.dtype))
        return over((hit * (rank <= n_ref[..., None])).sum(-1), n_ref)

    whole = max(n, ideal.shape[-1])
    return {name: score(text, int(k or whole)) for name in names for text, _, k in [name.partition("@")]}
