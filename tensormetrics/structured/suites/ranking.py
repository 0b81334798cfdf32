"""Rankings: predictions in order of rank against a set of reference items with gains."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.numbers import ranked
from ...core.numbers.exact_sums import prefix_sums, scatter_add
from ...core.resampling.weights import ResamplingUnits
from ..objects.nodes.ranking import ObjectRanking
from ..tensors import _lengths, policy
from ..tensors._groups import group_rows
from ..tensors._lengths import documents, in_chunks, read_tables, total
from ..tensors.normalizers import normalize
from ..tensors.reduction import CountMetric

AT_K = ("precision", "recall", "hit", "ap", "ndcg")
WHOLE = ("ap", "ndcg", "r_precision", "rr")


class RankingScores(CountMetric):
    """Mean scores of rankings over queries, in [0, 1], by the textbook definitions of trec_eval; higher is better.

    With h the hits in order of rank (a repeated prediction is a miss), o their running sum and m the reference items:
    `precision@k` o_k / k, `recall@k` o_k / m, `hit@k` [o_k > 0], `r_precision` o_m / m, `rr` one over the rank of the
    first hit, `ap@k` the sum of h_i o_i / i up to k over m, `ndcg@k` the sum of gain_i / log2(i + 1) up to k over the
    same sum for the best order. `ap` and `ndcg` use the full ranking. A gain that is not finite makes its query's ndcg
    NaN. The mean ignores NaN.

    Args:
        ks: Cut-offs of the scores at k.
        scores: Names of the scores.
        zero_division: Value of ratios over m without reference items, a number or "agree".

    >>> metric = RankingScores(ks=[2], scores=["precision", "rr"])
    >>> metric.update(torch.tensor([[4, 7, 9]]), torch.tensor([[7, 8]]))  # numbers of items: ranked, relevant
    >>> {name: float(value) for name, value in metric.compute().items()}
    {'precision@2': 0.5, 'rr': 0.5}
    """

    def __init__(
        self,
        ks: Sequence[int] = (1, 5, 10),
        scores: Sequence[str] = (*AT_K, "r_precision", "rr"),
        zero_division: float | str = 0.0,
        **kwargs: Any,
    ) -> None:
        self.ks = tuple(checks.check_int("ks", k, 1) for k in checks.as_list("ks", ks))
        for score in (scores := checks.as_list("scores", scores)):
            checks.check_choice("scores", score, tuple(dict.fromkeys(AT_K + WHOLE)))
        policy.check_zero_division(zero_division)
        self.zero_division = zero_division
        self.names = tuple(f"{score}@{k}" for score in scores if score in AT_K for k in self.ks)
        self.names += tuple(score for score in scores if score in WHOLE)
        super().__init__(len(self.names), "macro", **kwargs)

    def update(
        self,
        pred_keys: Tensor,
        ref_keys: Tensor,
        n_pred: Tensor | None = None,
        n_ref: Tensor | None = None,
        ref_gain: Tensor | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add queries.

        Shapes: pred_keys: (..., N) int (best first); ref_keys: (..., M) int (distinct); n_pred, n_ref: (...); ref_gain:
        (..., M), default 1.
        """
        checks.integral("pred_keys", pred_keys)
        checks.integral("ref_keys", ref_keys)
        counts = {"n_pred": n_pred, "n_ref": n_ref}
        tables, lengths = read_tables([], counts, pred_keys=pred_keys, ref_keys=ref_keys)
        if ref_gain is not None:
            checks.same_device(ref_keys=ref_keys, ref_gain=ref_gain)
            checks.shape("ref_gain", ref_gain, *ref_keys.shape)
            tables, lengths = [*tables, documents(ref_gain, 1)], [*lengths, lengths[1]]
        self.add_documents(in_chunks(self._count, tables, lengths, total), **items)

    def update_rankings(
        self,
        ranking: ObjectRanking,
        preds: Sequence[Sequence[Any]],
        refs: Sequence[Any],
        gains: Sequence[Sequence[float]] | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add queries of objects: the predictions, best first, the references and, optionally, their gains in order.

        Items are compared by the inner metric of `dsl.ranking[max_k](inner)`: o_k is the best one-to-one overlap of the
        first k predictions with the references, and h_k = o_k - o_(k-1) may lie between 0 and 1. A k above max_k is a
        ValueError, and so are gains with an inner metric other than equality.
        """
        deepest = max((int(name.partition("@")[2] or 0) for name in self.names), default=0)
        if deepest > ranking.max_k:
            raise ValueError(f"ks: got {deepest} above max_k {ranking.max_k}; write ranking[{deepest}]")
        *tables, n, m = (part.cpu() for part in ranking(preds, refs, gains))
        self.add_update(in_chunks(self._count_hits, tables, (n, n, m), total, flat=True, device=self.device), **items)

    def _count(self, pred_keys: Tensor, ref_keys: Tensor, *rest: Tensor) -> Tensor:
        # pred_keys: (D, N)  ref_keys: (D, M)  rest: optional gains (D, M), then the lengths (D,) of each  ->  (D, K)
        *gains, n_pred, n_ref = rest if len(rest) == 2 else rest[:3]
        n, m = pred_keys.shape[1], ref_keys.shape[1]
        valid = _lengths.mask(n_ref, m)
        ref_gain = gains[0].double().where(valid, 0) if gains else valid.double()
        ref_gain = ref_gain.masked_fill(~ref_gain.isfinite(), torch.nan)  # sorts before every gain
        # A hit is the first prediction of a key of the reference.
        key = group_rows(torch.cat([pred_keys.long(), ref_keys.long()], -1)[..., None]).ids
        pred_key, ref_key = key[..., :n], key[..., n:]
        num_refs = torch.zeros_like(key).scatter_add(-1, ref_key, valid.long())
        gains = scatter_add(torch.zeros_like(key, dtype=torch.float64), ref_key, ref_gain)
        rank = torch.arange(n, device=key.device).expand_as(pred_key).where(_lengths.mask(n_pred, n), n)
        first = torch.full_like(key, n).scatter_reduce(-1, pred_key, rank, "amin").gather(-1, pred_key)
        hit = (first == rank) & (rank < n) & (num_refs.gather(-1, pred_key) > 0)
        gained = gains.gather(-1, pred_key) * hit
        return self._count_hits(prefix_sums(hit.double()), gained, ref_gain, n_pred, n_pred, n_ref)

    def _count_hits(self, hits: Tensor, gained: Tensor, gain: Tensor, *lengths: Tensor) -> Tensor:
        # hits, gained: (D, N)  gain: (D, M)  lengths: (D,) of each  ->  (D, K)
        n_pred, _, n_ref = lengths
        ideal = gain.where(_lengths.mask(n_ref, gain.shape[1]), 0).sort(descending=True, dim=-1).values
        valid = _lengths.mask(n_pred, hits.shape[1])
        num_hits = (hits * valid).amax(-1, keepdim=True) if hits.shape[1] else hits.sum(-1, keepdim=True)
        hits, gained = hits.where(valid, num_hits), gained.where(valid, 0)
        scores = _scores(hits, gained, ideal, n_pred, n_ref, self.names, self.zero_division)
        return torch.stack([scores[name].expand(n_ref.shape) for name in self.names], -1)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., K) scores of queries  ->  name: (...)
        return dict(zip(self.names, counts.unbind(-1), strict=True))


def _scores(
    hits: Tensor,  # (..., N) running sum of hits, each in [0, 1]
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

    def discounted_sum(gain: Tensor) -> Tensor:
        return ranked.discounted(gain, torch.arange(1, gain.shape[-1] + 1, device=gain.device)).sum(-1)

    def score(name: str, k: int) -> Tensor:
        hits_at_k = from_none[..., min(k, n)]
        if name == "precision":
            return hits_at_k / k
        if name == "recall":
            return over(hits_at_k, n_ref)
        if name == "hit":
            return (hits_at_k > 0).to(hit.dtype)
        if name == "ap":
            return over((hit * ranked.precision_term(hits, rank))[..., :k].sum(-1), n_ref)
        if name == "ndcg":
            return over(discounted_sum(gained[..., :k]), discounted_sum(ideal[..., :k]))
        if name == "rr":
            return ((from_none > 0).to(hit.dtype).diff(dim=-1) / rank).sum(-1)
        return over((hit * (rank <= n_ref[..., None])).sum(-1), n_ref)

    full_depth = max(n, ideal.shape[-1])
    return {name: score(text, int(k or full_depth)) for name in names for text, _, k in [name.partition("@")]}
