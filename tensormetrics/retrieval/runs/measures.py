"""Measures of trec_eval, computed from the judged documents of ranked lists.

Definitions: Buckley and Voorhees, Retrieval System Evaluation, in TREC: Experiment and Evaluation in Information
Retrieval, 2005; bpref: DOI 10.1145/1008992.1009000; nDCG: DOI 10.1145/582415.582418.
"""

import difflib
import functools
from collections.abc import Callable, Sequence

import numpy as np

from ...core.arguments import checks
from .ranking import Hits

CUTS = 5, 10, 15, 20, 30, 100, 200, 500, 1000  # defaults of trec_eval
CUTS_OF_SUCCESS = 1, 5, 10
Measure = Callable[[Hits], np.ndarray]


def _divide(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Divide values by counts; 0 for a count of 0."""
    return np.divide(values, counts, out=np.zeros_like(values), where=counts > 0)


def _relevant_in(hits: Hits, depth: np.ndarray | float = np.inf) -> np.ndarray:
    # depth: (Q,) or a number  ->  (Q,)
    depth = np.broadcast_to(depth, hits.queries)[hits.query]
    return hits.count(hits.query[(hits.gain >= hits.level) & (hits.rank <= depth)])


def average_precision(hits: Hits, depth: float = np.inf) -> np.ndarray:
    good = hits.gain >= hits.level
    precision = hits.running_count(good) / hits.rank
    return _divide(hits.total(np.where(good & (hits.rank <= depth), precision, 0)), hits.relevant)


def ndcg(hits: Hits, depth: float = np.inf) -> np.ndarray:
    def discounted(gain: np.ndarray, rank: np.ndarray) -> np.ndarray:
        return np.where((gain > 0) & (rank <= depth), gain, 0) / np.log2(1 + rank)

    order = np.lexsort((-hits.judged_gain, hits.judged_query))
    query, gain = hits.judged_query[order], hits.judged_gain[order]
    firsts = np.searchsorted(query, query)
    ideal = np.bincount(query, discounted(gain, np.arange(1, len(query) + 1) - firsts), hits.queries)
    return _divide(hits.total(discounted(hits.gain, hits.rank)), ideal)


def precision(hits: Hits, depth: float) -> np.ndarray:
    return _relevant_in(hits, depth) / depth


def recall(hits: Hits, depth: float = np.inf) -> np.ndarray:
    return _divide(_relevant_in(hits, depth), hits.relevant)


def success(hits: Hits, depth: float) -> np.ndarray:
    return (_relevant_in(hits, depth) > 0).astype(np.float64)


def r_precision(hits: Hits) -> np.ndarray:
    return _divide(_relevant_in(hits, hits.relevant), hits.relevant)


def reciprocal_rank(hits: Hits, depth: float = np.inf) -> np.ndarray:
    good = (hits.gain >= hits.level) & (hits.rank <= depth)
    return hits.total(np.where(good & (hits.running_count(good) == 1), 1 / hits.rank, 0))


def bpref(hits: Hits) -> np.ndarray:
    good, bad = hits.gain >= hits.level, (hits.gain >= 0) & (hits.gain < hits.level)
    judged_bad = hits.judged_query[(hits.judged_gain >= 0) & (hits.judged_gain < hits.level)]
    relevant = hits.relevant
    max_above = np.minimum(relevant, hits.count(judged_bad))[hits.query]
    above = np.minimum(hits.running_count(bad), relevant[hits.query])
    return _divide(hits.total(np.where(good, 1 - _divide(above.astype(np.float64), max_above), 0)), relevant)


def set_precision(hits: Hits) -> np.ndarray:
    return _divide(_relevant_in(hits), hits.retrieved.astype(np.float64))


def set_f(hits: Hits) -> np.ndarray:
    values = set_precision(hits), recall(hits)
    return _divide(2 * values[0] * values[1], values[0] + values[1])


FLAT: dict[str, Measure] = {
    "map": average_precision,
    "ndcg": ndcg,
    "Rprec": r_precision,
    "recip_rank": reciprocal_rank,
    "bpref": bpref,
    "set_P": set_precision,
    "set_recall": recall,
    "set_F": set_f,
    "num_ret": lambda hits: hits.retrieved.astype(np.float64),
    "num_rel": lambda hits: hits.relevant,
    "num_rel_ret": _relevant_in,
}
CUT: dict[str, Callable[..., np.ndarray]] = {  # of hits, depth
    "map_cut": average_precision,
    "ndcg_cut": ndcg,
    "P": precision,
    "recall": recall,
    "recip_rank_cut": reciprocal_rank,
    "success": success,
}
# Names of ranx and ir_measures, in lower case.
OTHER_NAMES = {
    **{
        "ap": "map",
        "f1": "set_F",
        "mrr": "recip_rank",
        "precision": "set_P",
        "r-precision": "Rprec",
        "rr": "recip_rank",
    },
    **{"setf": "set_F", "setp": "set_P", "setr": "set_recall"},
    **{name.lower(): name for name in FLAT if not name.startswith("num_")},
}
OTHER_FAMILIES = {  # before "@" and a depth
    **{"ap": "map_cut", "map": "map_cut", "ndcg": "ndcg_cut", "p": "P", "precision": "P", "r": "recall"},
    **{"mrr": "recip_rank_cut", "rr": "recip_rank_cut", "recip_rank": "recip_rank_cut"},
    **{"hit_rate": "success", "recall": "recall", "success": "success"},
}
SUMMED = "num_ret", "num_rel", "num_rel_ret"  # summed over queries; other measures are averaged


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
            selected |= {f"{name}_{k}": functools.partial(CUT[name], depth=k) for k in cuts}
        elif separator and family in CUT and all(map(_is_depth, depths.split(","))):
            selected |= {f"{family}_{k}": functools.partial(CUT[family], depth=int(k)) for k in depths.split(",")}
        elif measure := _measure_of(name) or _measure_of(_trec_name(name) or ""):
            selected[name] = measure
        else:
            supported = [*FLAT, *(f"{cut}_10" for cut in CUT)]
            nearest = difflib.get_close_matches(name, supported, 1, 0)[0]
            raise ValueError(f"metrics: got {name!r}, wanted some of {', '.join(supported)}; perhaps {nearest!r}")
    return selected


def _measure_of(name: str) -> Measure | None:
    """Return the measure by its name in trec_eval, such as "map" or "P_10"."""
    family, _, depth = name.rpartition("_")
    if family in CUT and _is_depth(depth):
        return functools.partial(CUT[family], depth=int(depth))
    return FLAT.get(name)


def _trec_name(name: str) -> str | None:
    """Return the trec_eval name of a measure of ranx or ir_measures, such as "nDCG@10" or "mrr"; None for others."""
    measure, separator, depth = name.lower().partition("@")
    if not separator:
        return OTHER_NAMES.get(measure)
    family = OTHER_FAMILIES.get(measure)
    return f"{family}_{depth}" if family and _is_depth(depth) else None


def _is_depth(text: str) -> bool:
    return text.isdecimal() and int(text) > 0
