"""Scores of many queries in one model: words are looked up once per set, queries are scored in batches."""

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..embeddings.indexed_sets import padded, row_word_ids, word_keys
from ..embeddings.lookup import WordMatches, log
from ..embeddings.model import WordEmbeddingModel
from ..embeddings.query import IndexedQuery, Query
from ..metrics._call import Call
from ..metrics.base import BaseMetric
from ..resampling.null_distribution import NullDistribution, max_t_p_values
from ..sets import word_sets
from ..sets.word_sets import Vectors
from .plan import Plan

BUDGET = 2**22  # elements of float64 word vectors held at a time

Reasons = dict[int, str]  # query -> reason for a missing score
Progress = Callable[[int], Any]


def looped_scores(
    metric: BaseMetric,
    plan: Plan,
    model: WordEmbeddingModel,
    options: dict[str, Any],
    keys: Sequence[str],
    progress: Progress,
) -> tuple[Tensor, Reasons]:
    # ->  (K, Q) float64
    """Score queries one by one and return K entries of each result; a ValueError affects only its own query."""
    scores: list[list[float]] = []
    reasons = {}
    for i in range(len(plan.names)):
        try:
            result = metric.run_query(plan.query(i), model, **options)
        except ValueError as error:
            scores.append([math.nan] * len(keys))
            reasons[i] = str(error)
        else:
            if not isinstance(result, dict) or not {"query_name", *keys} <= result.keys():
                got = sorted(result) if isinstance(result, dict) else type(result).__name__
                expected = " and ".join(map(repr, ("query_name", *keys)))
                raise TypeError(f"{metric.metric_short_name}.run_query: got {got}, wanted {expected}")
            scores.append([float(result[key]) for key in keys])
            if math.isnan(scores[-1][0]):
                reasons[i] = _why(metric, plan.query(i), model, options)
        progress(1)
    return torch.tensor(scores, dtype=torch.float64, device=model.vectors.device).mT, reasons


def _why(metric: BaseMetric, query: Query, model: WordEmbeddingModel, options: dict[str, Any]) -> str:
    _, call = metric.bind(query, model, **{name: options[name] for name in options.keys() & {*metric.call_options}})
    is_overridden = type(metric).run_query is not BaseMetric.run_query
    return call.look_up(False).reason or (
        f"{metric.metric_short_name}.run_query gave NaN" if is_overridden else metric.no_score
    )


def batched_scores(
    metric: BaseMetric, plan: Plan, call: Call, keys: Sequence[str], progress: Progress
) -> tuple[Tensor, Reasons]:
    # ->  (K, Q) float64
    """Score queries in batches by `evaluate`; `call` holds the model and the options of the lookup."""
    reasons = _refused_queries(metric, plan)
    scores = torch.full((len(keys), len(plan.names)), torch.nan, dtype=torch.float64, device=call.model.vectors.device)
    for queries, evaluate in _batches(_Run(metric, plan, call, reasons, BaseMetric.evaluate)):
        try:
            values = evaluate()
        except ValueError as error:
            reasons |= dict.fromkeys(queries, str(error))
        else:
            values.setdefault("result", next(iter(values.values())))
            for row, key in zip(scores, keys, strict=True):
                if key in values:
                    row[torch.tensor(queries, device=scores.device)] = values[key].to(scores.dtype)
                elif key not in metric.result_keys:
                    raise TypeError(f"{metric.metric_short_name}.measure: got {sorted(values)}, wanted also {key!r}")
                else:
                    reasons |= dict.fromkeys(queries, f"the metric gives no {key!r} by these options")
        progress(len(queries))
    return scores, reasons


def corrected_p_values(metric: BaseMetric, plan: Plan, call: Call, progress: Progress) -> tuple[Tensor, Reasons]:
    # ->  (1, Q) float64
    """Compute the p-values of all queries jointly, from null scores that share random numbers per word."""
    reasons, nulls = _refused_queries(metric, plan), []
    scored_queries: list[int] = []
    for queries, null in _batches(_Run(metric, plan, call, reasons, _null, identifies_words=True)):
        try:
            nulls.append(null())
        except ValueError as error:
            reasons |= dict.fromkeys(queries, str(error))
        else:
            scored_queries += queries
        progress(len(queries))
    p_values = torch.full((len(plan.names),), torch.nan, dtype=torch.float64, device=call.model.vectors.device)
    if nulls:
        corrected = max_t_p_values(nulls, metric._alternative, metric.p_value_iterations)
        p_values[torch.tensor(scored_queries, device=p_values.device)] = corrected
    return p_values[None], reasons


def _null(metric: BaseMetric, *sets: Vectors) -> NullDistribution:
    return metric.null_distributions(*sets)["p_value"]


def _refused_queries(metric: BaseMetric, plan: Plan) -> Reasons:
    """Return queries of the right template that the metric refuses."""
    if type(metric).check_query is BaseMetric.check_query:
        return {}
    reasons = {}
    for i in range(len(plan.names)):
        try:
            metric.check_query(plan.query(i))
        except ValueError as error:
            reasons[i] = str(error)
    return reasons


Method = Callable[..., Any]  # method of a metric: `evaluate` or `_null`
Batches = Iterator[tuple[Sequence[int], Callable[[], Any]]]  # queries, and a function that returns their results


class _Run(NamedTuple):
    """Evaluation of a metric's method for the queries of a plan in one model; `reasons` collects refused queries.

    With `identifies_words` the rows of target words have ids from `word_keys`, which are the same in all queries.
    """

    metric: BaseMetric
    plan: Plan
    call: Call
    reasons: Reasons
    method: Method
    identifies_words: bool = False

    def evaluate(self, index: IndexedQuery) -> Any:
        return self.method(self.metric, *self.metric.read_sets(index, self.call))

    def evaluate_stacked(self, indices: Sequence[IndexedQuery]) -> Any:
        return self.evaluate(IndexedQuery.stack(indices))


def _batches(run: _Run) -> Batches:
    """Yield the queries in batches, with a function that evaluates each batch."""
    return (_paired_batches if run.metric.paired else _set_batches)(run)


def _paired_batches(run: _Run) -> Batches:
    """Yield batches of queries that are looked up one by one, because lost words remove whole tuples."""
    metric, plan, call, reasons = run[:4]
    groups = defaultdict(list)
    for i in range(len(plan.names)):
        if i in reasons:
            continue
        try:
            index = call.look_up(metric.paired, plan.query(i))
        except ValueError as error:
            reasons[i] = str(error)
            continue
        if index.reason:
            reasons[i] = index.reason
        else:
            sizes = tuple((sets.longest, sets.word_counts) for sets in index.roles)
            index = index.with_words_identified() if run.identifies_words else index
            groups[_batch_key(metric, index.template, sizes)].append((i, index))
    for (template, _), group in groups.items():
        width = sum(template) * max(max(sets.longest, default=0) for _, index in group for sets in index.roles)
        for chunk in _chunks(group, width * call.model.vectors.shape[1]):
            queries, indices = zip(*chunk, strict=True)
            yield queries, functools.partial(run.evaluate_stacked, indices)


def _set_batches(run: _Run) -> Batches:
    metric, plan, call, reasons = run[:4]
    sets = _SetRows.look_up(plan, call)
    sets.explain(plan, reasons)
    groups = defaultdict(list)
    for i, set_indices in enumerate(zip(plan.targets, plan.attributes, strict=True)):
        if i not in reasons:
            targets, attributes = set_indices
            sizes = [[sets.size(s) for s in indices] for indices in set_indices] if metric.calculate_p_value else None
            groups[_batch_key(metric, (len(targets), len(attributes)), sizes)].append(i)
    device, dims = call.model.vectors.device, call.model.vectors.shape[1]
    table, mask = padded(sets.rows, device)
    word_ids = sets.identities() if run.identifies_words else sets.word_ids
    words = None if word_ids is None else padded(word_ids, device)[0]
    shared = _supports_sharing(metric) and not metric.calculate_p_value and not metric.replicates
    size = mask.shape[1] * dims
    # Sets that are part of many queries are read once, if all of them fit in memory.
    fits_in_memory = shared and len(sets.rows) * max(size, len(sets.rows) * mask.shape[1]) <= BUDGET
    for (template, _), queries in groups.items():
        for chunk in _chunks(queries, mask.shape[1] if fits_in_memory else sum(template) * size):
            t, a = ([indices[i] for i in chunk] for indices in (plan.targets, plan.attributes))
            if shared:
                yield chunk, functools.partial(_evaluate_shared, metric, table, mask, words, t, a, call)
            else:
                index = IndexedQuery.of_sets(table, mask, np.array(sets.lengths()), t, a, words)
                yield chunk, functools.partial(run.evaluate, index)


def _supports_sharing(metric: BaseMetric) -> bool:
    """Return whether the class that defines `measure` also defines `measure_shared`, which computes the same score."""
    first = next(kind for kind in type(metric).__mro__ if {"measure", "measure_shared"} & vars(kind).keys())
    return vars(first).get("measure_shared") is not None


def _batch_key(metric: BaseMetric, template: tuple[int, int], lengths: Any) -> tuple[Any, ...]:
    """Return the key of a query's batch: with p-values also the sizes, as padding would make exact tests random."""
    return template, repr(lengths) if metric.calculate_p_value else None


def _chunks(items: Sequence[Any], cost: int) -> Iterator[Sequence[Any]]:
    size = max(1, BUDGET // max(cost, 1))
    for start in range(0, len(items), size):
        yield items[start : start + size]


class _SetRows(NamedTuple):
    """Rows of each set of a plan; unusable sets have no rows."""

    rows: list[list[int]]
    keys: list[list[str]]  # key of each row
    word_ids: list[Sequence[int]] | None  # id of each row's word in its set; None: each row is a word
    loss_reasons: dict[int, str]  # set -> reason why it is unusable

    @staticmethod
    def look_up(plan: Plan, call: Call) -> "_SetRows":
        """Look up all sets of a plan as `WordEmbeddingModel.index_query` does."""
        model = call.model
        matches = [call.search.words(members) for members in plan.sets]
        loss_reasons = _loss_reasons(matches, call)
        _log_losses(plan, matches, loss_reasons, call)
        indexed_rows = [
            model._table.indexed_rows([] if s in loss_reasons else match.keys) for s, match in enumerate(matches)
        ]
        rows, keys = [rows for rows, _ in indexed_rows], [row_keys for _, row_keys in indexed_rows]
        ids_by_set = [row_word_ids(row_keys, match.origins) for row_keys, match in zip(keys, matches, strict=True)]
        word_ids = [
            range(len(set_rows)) if ids is None else ids for set_rows, ids in zip(rows, ids_by_set, strict=True)
        ]
        return _SetRows(
            rows,
            [[match.keys[key] for key in row_keys] for row_keys, match in zip(keys, matches, strict=True)],
            None if all(ids is None for ids in ids_by_set) else word_ids,
            loss_reasons,
        )

    def lengths(self) -> list[int]:
        return list(map(len, self.rows))

    def size(self, s: int) -> tuple[int, int | None]:
        """Return the numbers of rows and of words of a set."""
        return len(self.rows[s]), None if self.word_ids is None else len(set(self.word_ids[s]))

    def identities(self) -> list[list[int]]:
        word_ids = self.word_ids or [range(n) for n in self.lengths()]
        return [word_keys(keys, ids) for keys, ids in zip(self.keys, word_ids, strict=True)]

    def explain(self, plan: Plan, reasons: Reasons) -> None:
        """Add the queries with an unusable set to the reasons."""
        for i, set_indices in enumerate(zip(plan.targets, plan.attributes, strict=True)):
            descriptions = [
                f"{label!r} {self.loss_reasons[s]}"
                for indices, labels in zip(set_indices, plan.labels[i], strict=True)
                for s, label in zip(indices, labels, strict=True)
                if s in self.loss_reasons
            ]
            if descriptions:
                reasons.setdefault(i, "; ".join(descriptions))


def _loss_reasons(matches: list[WordMatches], call: Call) -> dict[int, str]:
    """Return the reasons why sets are unusable, and compute the rows of the other sets."""
    table, threshold = call.model._table, call.lost_vocabulary_threshold
    loss_reasons = {s: reason for s, match in enumerate(matches) if (reason := match.loss_reason(threshold))}
    valid = {s: match.keys for s, match in enumerate(matches) if s not in loss_reasons}
    try:
        table.add(chain.from_iterable(valid.values()))
    except ValueError:  # an encoder refused a text; only its own sets become unusable
        for s, keys in valid.items():
            try:
                table.add(keys)
            except ValueError as error:
                loss_reasons[s] = f"has a word without a vector ({error})"
    return loss_reasons


def _log_losses(plan: Plan, matches: list[WordMatches], loss_reasons: dict[int, str], call: Call) -> None:
    for s, match in enumerate(matches):
        if s in loss_reasons:
            log.warning("the set %s... %s in the model %r", plan.sets[s][:3], loss_reasons[s], call.model.name)
        elif match.lost and call.warn_not_found_words:
            log.warning("not in the vocabulary of %r: %s", call.model.name, ", ".join(match.lost))


def _evaluate_shared(
    metric: BaseMetric,
    table: Tensor,
    mask: Tensor,
    words_of_rows: Tensor | None,
    targets: list,
    attributes: list,
    call: Call,
) -> dict[str, Tensor]:
    words, queries = [], []
    for indices in targets, attributes:
        sets, positions = torch.tensor(indices, device=table.device).unique(return_inverse=True)
        vectors = call.model.vectors[table[sets]]
        if call.normalize:
            vectors = word_sets.unit(vectors.double())
        ids = None if words_of_rows is None or metric.unit == "row" else words_of_rows[sets]
        words.append(word_sets.as_words(vectors, mask[sets], words=ids))
        queries.append(positions)
    assert metric.measure_shared is not None  # see `_supports_sharing`
    return metric.measure_shared(*words, *queries)
