"""Several models in several metrics: a table of scores, and of differences with corrected p-values."""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from torchmetrics import MetricCollection

from ...core.arguments import checks
from ...core.arguments.callers import level_of_caller
from ...core.resampling.errors import UncertaintyWarning
from ...core.resampling.families import FAMILY_CORRECTIONS, corrected
from ...core.results.cells import single_values
from ...core.results.estimates import Comparison
from ...core.results.ranks import RANK_COLUMNS, rank_cells
from ...core.results.table import Comparisons, ComparisonTable, Table, pairs_table
from ..item_scores.item_scores import Scores
from ..item_scores.score_sources import NO_SOURCE, Source, is_scores
from .sampled import ComparisonOptions, PairedScores, Sample, check_comparable

Models = dict[str, dict[str, Sample]]  # model -> metric ("" for a model that is one metric) -> its replicates


def compare_models(
    models: Mapping[str, Any],
    options: ComparisonOptions,
    correction: str = "max-t",
    baseline: str | None = None,
    source: Source = NO_SOURCE,
    on_missing: str = "error",
) -> Table:
    """Return the table of all pairs, or with a baseline that of all models; see `compare`."""
    checks.check_choice("correction", correction, FAMILY_CORRECTIONS)
    if len(models) < 2:
        raise ValueError(f"a: got {len(models)} models, wanted at least two")
    if baseline is not None:
        checks.check_choice("baseline", baseline, models)
    options.question(bool)  # checks the options before any work
    members = {model: _members(metrics, source, model) for model, metrics in models.items()}
    _check_members(members)
    with one_warning():
        samples, paired = _samples(members, options, on_missing)
        pairs = [*itertools.combinations(samples, 2)]
        all_pairs = functools.cache(lambda: _comparisons(samples, paired, pairs, options, correction))
        if baseline is None:
            table = pairs_table(all_pairs(), [*_columns(samples)])
            return ComparisonTable._of(table, _ranked(samples, all_pairs()))
        others = [(model, baseline) for model in samples if model != baseline]
        differences = _comparisons(samples, paired, others, options, correction)
    return _table(samples, differences, baseline, correction, options.rope)._compared_by(all_pairs)


def _members(model: Any, source: Source, name: str) -> dict[str, Any]:
    if is_scores(model):
        return {"": source.read(model, name)}
    if not isinstance(model, Mapping | MetricCollection):
        return {"": model}
    return {
        metric: source.read(scores, f"{name}, {metric}").replaced(name=metric) if is_scores(scores) else scores
        for metric, scores in model.items()
    }


def _check_members(members: dict[str, dict[str, Any]]) -> None:
    """Raise an error unless all models have the same metrics."""
    first, *others = members
    for model in others:
        if members[model].keys() != members[first].keys():
            got, expected = (", ".join(members[name]) or "one metric" for name in (model, first))
            raise ValueError(f"{model}: got {got}, wanted {expected} as {first} has")
        for name, metric in members[model].items():
            check_comparable(members[first][name], metric, (first, model))
    for model, metrics in members.items():
        for scores in metrics.values():
            if isinstance(scores, Scores) and scores.shape:
                raise ValueError(f"{model}: got scores {(*scores.shape, len(scores))}, wanted a score for each item")


def _samples(
    members: dict[str, dict[str, Any]], options: ComparisonOptions, on_missing: str
) -> tuple[Models, dict[str, PairedScores]]:
    """Draw the replicates of all models, those of plain scores together."""
    samples: Models = {model: {} for model in members}
    paired = {}
    for metric, kind in next(iter(members.values())).items():
        if isinstance(kind, Scores):
            scores = {model: metrics[metric] for model, metrics in members.items()}
            paired[metric] = PairedScores.of(scores, options, on_missing)
            column = iter(paired[metric].samples.values())
        else:
            column = (Sample.of(metrics[metric], options) for metrics in members.values())
        for model, sample in zip(members, column, strict=True):
            samples[model][metric] = sample
    return samples, paired


def _columns(samples: Models) -> dict[str, bool | None]:
    """Return the names of all scores, and whether higher is better."""
    columns: dict[str, bool | None] = {}
    for metrics in samples.values():
        for metric, sample in metrics.items():
            several = sample.estimates if isinstance(sample.estimates, Mapping) else {"": sample.estimates}
            for name, estimate in several.items():
                direction = sample.metric._direction(name)
                columns |= dict.fromkeys((column for column, _ in _named(estimate, metric, name)), direction)
    return columns


def _named(result: Any, metric: str, name: str) -> Iterator[tuple[str, Any]]:
    """Yield each value of a result with its column."""
    column = "/".join(filter(None, (metric, name))) or result.name
    yield from single_values(dataclasses.replace(result, name=column))


def _values(results: Any, metric: str) -> dict[str, Any]:
    several = results if isinstance(results, Mapping) else {"": results}
    return {column: value for name, result in several.items() for column, value in _named(result, metric, name)}


def _row(metrics: dict[str, Sample]) -> dict[str, Any]:
    values = (_values(sample.estimates, metric) for metric, sample in metrics.items())
    return {column: value for columns in values for column, value in columns.items()}


def _comparisons(
    samples: Models, paired: dict[str, PairedScores], pairs: Any, options: ComparisonOptions, correction: str
) -> Comparisons:
    by_pair: dict[tuple[str, str], dict[str, Comparison]] = {pair: {} for pair in pairs}
    options = options._replace(of_family=True)
    for metric in next(iter(samples.values())):
        if metric in paired:
            compared: Iterator[Any] = paired[metric].pairs(pairs, options)
        else:
            compared = (samples[a][metric].compared(samples[b][metric], options) for a, b in pairs)
        for pair, comparison in zip(pairs, _corrected(list(compared), correction), strict=True):
            by_pair[pair] |= _values(comparison, metric)
    return by_pair


def _corrected(compared: list[Any], correction: str) -> list[Any]:
    """Correct the comparisons of each name over all pairs."""
    if isinstance(compared[0], Mapping):
        columns = {name: corrected([results[name] for results in compared], correction) for name in compared[0]}
        return [{name: column[i] for name, column in columns.items()} for i in range(len(compared))]
    return corrected(compared, correction)


def _ranked(samples: Models, pairs: Comparisons) -> Table:
    """Return the table of the models, with the ranks that each may have if there is one score with a direction."""
    columns, rows = _columns(samples), [*map(_row, samples.values())]
    (column, direction), *others = columns.items()
    if direction is not None and not others:
        columns |= dict.fromkeys(RANK_COLUMNS)
        for row, ranks in zip(rows, rank_cells(samples, pairs, column), strict=True):
            row |= ranks
    return Table(list(samples), columns, rows, index="model")


def correct_comparisons(by_pair: Comparisons, correction: str) -> Comparisons:
    """Correct each column over the pairs, where there are several."""
    columns = {
        column: corrected([comparisons[column] for comparisons in by_pair.values()], correction)
        for column in next(iter(by_pair.values()), {})
    }
    return {pair: {name: column[i] for name, column in columns.items()} for i, pair in enumerate(by_pair)}


def _table(samples: Models, differences: Comparisons, baseline: str, correction: str, rope: float | None) -> Table:
    directions = _columns(samples)
    columns: dict[str, bool | None] = {}
    for name, direction in directions.items():
        columns |= {name: direction, f"{name} - {baseline}": None, f"{name} p": None}
        columns |= {} if rope is None else {f"{name} p_not_worse": None, f"{name} verdict": None}
    rows = []
    for model, metrics in samples.items():
        row = _row(metrics)
        for name, comparison in differences.get((model, baseline), {}).items():
            row |= {f"{name} - {baseline}": comparison, f"{name} p": comparison._decisive_p}
            row |= {f"{name} p_not_worse": comparison.p_not_worse, f"{name} verdict": comparison.verdict}
        rows.append({name: row.get(name) for name in columns})
    caption = (
        f"intervals of differences and p: corrected over {len(differences)} models ({correction})"
        if len(differences) > 1
        else None
    )
    return Table(list(samples), columns, rows, caption=caption, index="model")


class one_warning(warnings.catch_warnings):
    """Context manager that emits equal warnings of many comparisons once."""

    def __init__(self) -> None:
        super().__init__(record=True)

    def __enter__(self) -> Any:
        self.log = super().__enter__()
        warnings.simplefilter("always", UncertaintyWarning)
        return self.log

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for message, category in dict.fromkeys((str(warning.message), warning.category) for warning in self.log or ()):
            warnings.warn(message, category, stacklevel=level_of_caller())
