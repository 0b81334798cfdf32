"""Metric strings: "name" or "name@averaging"."""

import functools
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from .averaging import AVERAGINGS, Averaging
from .scores import SCORES, Score

BY_ALIAS = {alias: score for score in SCORES for alias in score.aliases}
AVERAGING_BY_ALIAS = {alias: averaging for averaging in AVERAGINGS for alias in averaging.aliases}


def resolve(metric: str) -> Score:
    """The score a metric string names; equal metrics give the same object, however they are spelled."""
    if not isinstance(metric, str) or not metric.strip() or metric.count("@") > 1:
        raise ValueError(f"metric: got {metric!r}, wanted 'name' or 'name@averaging', such as 'acc' or 'f1@macro'")
    name, at, average = metric.partition("@")
    score = _find(metric, "metric", name, BY_ALIAS)
    if not at:
        return score
    averaging = _find(metric, "averaging", average, AVERAGING_BY_ALIAS)
    if not score.per_class:
        raise ValueError(f"metric {metric!r}: {name.strip()!r} is one number already; leave out '@{average}'")
    return _averaged(score, averaging)


def _find(metric: str, kind: str, token: str, table: Mapping[str, Any]) -> Any:
    name, plus, _ = token.partition("+")
    name = name.strip()
    if name not in table:
        closest = ", ".join(get_close_matches(name, table, cutoff=0))
        raise ValueError(f"metric {metric!r}: there is no {kind} {name!r}; the closest are {closest}")
    if plus:
        raise ValueError(f"metric {metric!r}: options are not available for {name!r}; write {name!r} alone")
    return table[name]


@functools.cache
def _averaged(score: Score, averaging: Averaging) -> Score:
    return score._replace(
        aliases=tuple(f"{name}@{average}" for name in score.aliases for average in averaging.aliases),
        full_name=f"{score.full_name} with {averaging.full_name}",
        formula=lambda sums: averaging.formula(score.formula(sums), sums),
        per_class=False,
    )
