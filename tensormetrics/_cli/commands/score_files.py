"""Scores of items in logs and tables: their means, and comparisons of models."""

from pathlib import Path
from typing import Any

from ...uncertainty import compare, interval, read_scores
from ...uncertainty.item_scores import Scores as ItemScores
from ...uncertainty.results.estimates import Estimate
from ..inputs import BadInput, existing, naming
from ..output import publish
from .scores import Comparisons, Scores

HINTS = {'write on_missing="drop" to leave these out, or "zero"': "write --on-missing drop to leave these out, or zero"}


def answer(
    files: tuple[str, ...],
    metric: str | None,
    answer_filter: str | None,
    ids: str | None,
    groups: str | None,
    on_missing: str,
    lower_is_better: bool,
    rope: float | None,
    confidence: float,
    replicates: int,
    device: str | None,
    **outputs: Any,
) -> int:
    if len(files) == 1 and rope is not None:
        raise BadInput("--rope: is for several files; give another one")
    if len({*files}) < len(files):
        twice = next(file for i, file in enumerate(files) if file in files[:i])
        raise BadInput(f"{twice}: got this file twice, wanted distinct files")
    models: dict[str, ItemScores] = {}
    columns = {"filter": answer_filter, "ids": ids, "groups": groups}
    options: dict[str, Any] = {"confidence": confidence, "replicates": replicates}
    estimates: dict[str, Estimate] = {}
    for file, name in zip(files, _distinct(files), strict=True):
        with naming(metric="--metric", filter="--filter", groups="--groups", ids="--ids"):
            read = read_scores(existing(file), metric, **columns)
            models[name] = read.replaced(higher_is_better=not lower_is_better)
    for name, model in models.items():
        with naming():
            estimates[name] = interval(model, **options)
    scores = Scores({name: float(estimate) for name, estimate in estimates.items()}, estimates, confidence)
    report: dict[str, Any] = {"files": list(files), "models": scores.answer()}
    options |= {"rope": rope, "on_missing": on_missing}
    tables = [scores.table("file")]
    if len(models) == 2:
        (a, b), name = models.values(), next(iter(models.values())).name
        comparisons = Comparisons.of({name: (a, b)}, (files[0], files[1]), HINTS, **options)
        tables = [comparisons.table("metric")]
        report["comparison"] = comparisons.answer()
    elif len(models) > 2:
        with naming(HINTS, ids=", ".join(files)):
            pairs = compare(models, **options)
        tables = [pairs.models, pairs]
        report["comparison"] = {row: pairs[row, "difference"].to_dict() for row in pairs.rows}
        report["ranks"] = pairs.ranks
    return publish(tables, report, scores.draw, scores.values.values(), **outputs)


def _distinct(files: tuple[str, ...]) -> list[str]:
    """Return the names of the files, with their folders where two are equal."""
    names = [Path(file).name for file in files]
    return names if len({*names}) == len(names) else [*files]
