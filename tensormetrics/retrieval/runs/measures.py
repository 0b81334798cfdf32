"""Measures of trec_eval, ranx and ir_measures by name: functions of the ranks of judged documents.

Definitions: Buckley and Voorhees, Retrieval System Evaluation, in TREC: Experiment and Evaluation in Information
Retrieval, 2005; bpref: DOI 10.1145/1008992.1009000; nDCG: DOI 10.1145/582415.582418; ERR: DOI 10.1145/1645953.1646033;
RBP: DOI 10.1145/1416950.1416952.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.numbers.exact_sums import doubling_sums, ratio
from ..deterministic import halving_sum
from ..ranking.positive_ranks import PositiveRanks
from ..scores.average_precision import average_precision
from ..scores.ndcg import Gain, ndcg
from ..scores.precision import precision, r_precision
from ..scores.recall import hit_rate, recall
from ..scores.reciprocal_rank import reciprocal_rank
from .ranks import JudgedRanks, Measure

CUTS = 5, 10, 15, 20, 30, 100, 200, 500, 1000  # defaults of trec_eval
CUTS_OF_SUCCESS = 1, 5, 10
LEVELS = tuple(n / 10 for n in range(11))  # of recall
MIN_GEOMETRIC = 1e-5  # of an average precision in gm_map
MAX_GAIN = 4  # of ERR, as in gdeval


def _within(ranks: PositiveRanks, k: int | None) -> Tensor:
    return ranks.rank > 0 if k is None else ranks.within(k)


def _of_positives(judged: JudgedRanks, score: Callable[..., Tensor], **options: int) -> Tensor:
    return score(judged.positives, **options).nan_to_num(0)


def _of_gains(judged: JudgedRanks, k: int | None = None, gain: Gain = "linear") -> Tensor:
    return ndcg(judged.graded, k, gain).nan_to_num(0)


def _divide(values: Tensor, counts: Tensor) -> Tensor:
    """Divide values by counts; 0 for a count of 0."""
    return torch.where(counts > 0, values / counts, 0.0)


def geometric_precision(judged: JudgedRanks) -> Tensor:
    """Return the logarithm of the average precision."""
    return _of_positives(judged, average_precision).clamp(min=MIN_GEOMETRIC).log()


def interpolated_precision(judged: JudgedRanks, level: float) -> Tensor:
    """Return the highest precision at or after the rank where the recall reaches a level."""
    found = judged.positives.rank > 0
    order = found.cumsum(-1)
    needed = (level * judged.positives.relevant.double() + 0.9).floor()[..., None]  # as trec_eval rounds
    precisions = torch.where(found & (order >= needed), order.double() / judged.rank, 0.0)
    return precisions.amax(-1)


def eleven_points(judged: JudgedRanks) -> Tensor:
    return torch.stack([interpolated_precision(judged, level) for level in LEVELS]).mean(0)


def bpref(judged: JudgedRanks) -> Tensor:
    relevant, is_bad = judged.positives.relevant, (judged.gain >= 0) & (judged.gain < judged.level)
    above = torch.minimum((is_bad & (judged.rank > 0)).cumsum(-1), relevant[:, None]).double()
    max_above = torch.minimum(relevant, is_bad.sum(-1))[:, None]
    terms = torch.where(judged.positives.rank > 0, 1 - _divide(above, max_above), 0.0)
    return _divide(halving_sum(terms), relevant)


def expected_reciprocal_rank(judged: JudgedRanks, k: int | None = None) -> Tensor:
    """Return the expected reciprocal rank at which a user stops, who is satisfied more often by higher gains."""
    is_found = _within(judged.graded, k)
    satisfied = (torch.exp2(judged.gain.clamp(0, MAX_GAIN)) - 1) / 2.0**MAX_GAIN * is_found
    reached = torch.nn.functional.pad(doubling_sums(1 - satisfied, torch.mul)[:, :-1], (1, 0), value=1.0)
    return halving_sum(torch.where(is_found, reached * satisfied / judged.rank, 0.0))


def rank_biased_precision(judged: JudgedRanks, persistence: float, k: int | None = None) -> Tensor:
    weights = persistence ** (judged.rank - 1).double()
    return (1 - persistence) * halving_sum(torch.where(_within(judged.positives, k), weights, 0.0))


def judged_fraction(judged: JudgedRanks, k: int) -> Tensor:
    """Return the fraction of the first k documents that have a judgement."""
    return _divide(((judged.rank > 0) & (judged.rank <= k)).sum(-1).double(), judged.retrieved.clamp(max=k))


def set_precision(judged: JudgedRanks) -> Tensor:
    return _divide((judged.positives.rank > 0).sum(-1).double(), judged.retrieved)


def set_recall(judged: JudgedRanks) -> Tensor:
    return _divide((judged.positives.rank > 0).sum(-1).double(), judged.positives.relevant)


def set_f(judged: JudgedRanks) -> Tensor:
    values = set_precision(judged), set_recall(judged)
    return _divide(2 * values[0] * values[1], values[0] + values[1])


FLAT: dict[str, Measure] = {
    "map": functools.partial(_of_positives, score=average_precision),
    "ndcg": _of_gains,
    "Rprec": functools.partial(_of_positives, score=r_precision),
    "recip_rank": functools.partial(_of_positives, score=reciprocal_rank),
    "bpref": bpref,
    "set_P": set_precision,
    "set_recall": set_recall,
    "set_F": set_f,
    "gm_map": geometric_precision,
    "11pt_avg": eleven_points,
    "num_ret": lambda judged: judged.retrieved.double(),
    "num_rel": lambda judged: judged.positives.relevant.double(),
    "num_rel_ret": lambda judged: (judged.positives.rank > 0).sum(-1).double(),
    "ndcg_exp": functools.partial(_of_gains, gain="exp2"),
    "err": expected_reciprocal_rank,
    "rbp": functools.partial(rank_biased_precision, persistence=0.8),
}
CUT: dict[str, Callable[..., Tensor]] = {  # of ranks and a depth k
    "map_cut": FLAT["map"],
    "ndcg_cut": FLAT["ndcg"],
    "P": functools.partial(_of_positives, score=precision),
    "recall": functools.partial(_of_positives, score=recall),
    "recip_rank_cut": FLAT["recip_rank"],
    "success": functools.partial(_of_positives, score=hit_rate),
    "ndcg_exp_cut": FLAT["ndcg_exp"],
    "err_cut": FLAT["err"],
    "judged": judged_fraction,
}
RECALL, PERSISTENCE = "iprec_at_recall", "rbp"  # families of a number in [0, 1]
# Names of ranx and ir_measures, in lower case.
OTHER_NAMES = {
    **{name.lower(): name for name in FLAT if not name.startswith("num_")},
    **{"ap": "map", "f1": "set_F", "mrr": "recip_rank", "precision": "set_P", "r-precision": "Rprec"},
    **{"rr": "recip_rank", "setf": "set_F", "setp": "set_P", "setr": "set_recall"},
    **{"ndcg_burges": "ndcg_exp", "ndcg(dcg='exp-log2')": "ndcg_exp"},
}
OTHER_FAMILIES = {  # before "@" and a depth, if it is not one of OTHER_NAMES with "_cut"
    **{"p": "P", "precision": "P", "r": "recall", "recall": "recall"},
    **{"hit_rate": "success", "success": "success", "judged": "judged"},
}
SUMMED = "num_ret", "num_rel", "num_rel_ret"  # summed over queries; other measures are averaged
GEOMETRIC = "gm_map"  # whose values are logarithms


def means_of(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # values: (Q,) each  ->  () each
    """Average measures over queries, and sum counts."""
    columns = torch.stack([*values.values()])
    totals = columns.sum(-1)
    means = ratio(totals, columns.shape[1])
    named = dict(zip(values, zip(totals, means, strict=True), strict=True))
    return {name: x[0] if name in SUMMED else x[1].exp() if name == GEOMETRIC else x[1] for name, x in named.items()}


def measures(names: str | Sequence[str]) -> dict[str, Measure]:
    """Return the measures by name; names are those of trec_eval, ranx or ir_measures.

    A family such as "P" selects all default depths of trec_eval, and "P.5,10" the given ones. ValueError for other
    names, or none.
    """
    names = [names] if isinstance(names, str) else checks.as_list("metrics", names)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"metrics: got {wrong[0]!r:.60}, wanted names such as 'map'")
    if not names:
        raise ValueError("metrics: got none, wanted at least one name")
    selected: dict[str, Measure] = {}
    for name in names:
        family, separator, depths = name.partition(".") if "." in name else (name, "", "")
        if name in CUT:
            cuts = CUTS_OF_SUCCESS if name == "success" else CUTS
            selected |= {f"{name}_{k}": functools.partial(CUT[name], k=k) for k in cuts}
        elif name == RECALL:
            selected |= {
                f"{name}_{level:.2f}": functools.partial(interpolated_precision, level=level) for level in LEVELS
            }
        elif separator and family in CUT and all(map(_is_depth, depths.split(","))):
            selected |= {f"{family}_{k}": functools.partial(CUT[family], k=int(k)) for k in depths.split(",")}
        elif measure := _measure_of(name) or _measure_of_others(name.lower()):
            selected[name] = measure
        else:
            supported = [*FLAT, *(f"{cut}_10" for cut in CUT), f"{RECALL}_0.10", f"{PERSISTENCE}.95"]
            wanted = f"some of {', '.join(supported)}{checks.perhaps(name, supported)}"
            raise ValueError(f"metrics: got {name!r}, wanted {wanted}")
    return selected


def _measure_of(name: str) -> Measure | None:
    """Return the measure by its name in trec_eval, such as "map" or "P_10"."""
    family, _, depth = name.rpartition("_")
    if family in CUT and _is_depth(depth):
        return functools.partial(CUT[family], k=int(depth))
    if family == RECALL and re.fullmatch(r"0?\.\d+|[01](\.0*)?", depth):
        return functools.partial(interpolated_precision, level=float(depth))
    return FLAT.get(name)


def _measure_of_others(name: str) -> Measure | None:
    """Return the measure by its name in ranx or ir_measures, such as "ndcg@10" or "rbp.95", in lower case."""
    if weighted := re.fullmatch(r"rbp(?:(\.\d+)|\(p=(0?\.\d+)\))?(?:@([1-9]\d*))?", name):
        persistence, depth = float(weighted[1] or weighted[2] or 0.8), weighted[3]
        return functools.partial(rank_biased_precision, persistence=persistence, k=int(depth) if depth else None)
    measure, separator, depth = name.partition("@")
    if measure == "iprec" and separator:
        return _measure_of(f"{RECALL}_{depth}")
    if separator:
        return _measure_of(f"{OTHER_FAMILIES.get(measure, f'{OTHER_NAMES.get(measure)}_cut')}_{depth}")
    return FLAT.get(OTHER_NAMES.get(measure, ""))


def _is_depth(text: str) -> bool:
    return text.isdecimal() and int(text) > 0
