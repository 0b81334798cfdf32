"""Scores of many queries in one model: words are looked up once per set, queries are scored in batches."""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...core.results.estimates import Estimate
from ..embeddings.indexed_sets import padded, row_word_ids, word_keys
from ..embeddings.lookup import WordMatches, log
from ..embeddings.model import WordEmbeddingModel
from ..embeddings.query import IndexedQuery
from ..metrics.base import BaseMetric
from ..resampling.draws import chunks
from ..resampling.null_distribution import NullDistribution, max_t_p_values
from ..sets import word_sets
from ..sets.word_sets import Vectors
from .plan import QueryPlan

BUDGET = 2**22  # elements of float64 word vectors held at a time

Reasons = dict[int, str]  # query -> reason for a missing score
Progress = Callable[[int], Any]


def scores_of_queries(
    metric: BaseMetric, plan: QueryPlan, model: WordEmbeddingModel, progress: Progress
) -> tuple[dict[str, Tensor], Reasons]:
    # ->  name: (Q,) float64, NaN where a query has no such number
    """Return "value", "low", "high" and the numbers in the details of each query's estimate.

    A ValueError affects only the queries of its batch.
    """
    run = _Run(metric, plan, model, _refused_queries(metric, plan), BaseMetric.evaluate)
    numbers: dict[str, Tensor] = {}
    for queries, estimate in _results(run, progress):
        if not isinstance(estimate, Estimate):
            got = type(estimate).__name__
            raise TypeError(f"{metric.metric_short_name}.run_query: got a {got}, wanted an Estimate")
        if why := estimate.details.get("reason"):
            run.reasons.update(dict.fromkeys(queries, why))
        named = {"value": estimate.value, "low": estimate.low, "high": estimate.high, **estimate.details}
        index = torch.tensor(queries, device=estimate.value.device)
        for name, values in named.items():
            if isinstance(values, Tensor) and values.shape == estimate.value.shape:
                if name not in numbers:
                    numbers[name] = values.new_full((len(plan.names),), torch.nan, dtype=torch.float64)
                numbers[name][index] = values.double()
    return numbers, run.reasons


def corrected_p_values(
    metric: BaseMetric, plan: QueryPlan, model: WordEmbeddingModel, progress: Progress
) -> tuple[Tensor, Reasons]:
    # ->  (Q,) float64
    """Compute the p-values of all queries jointly, from null scores that share random numbers per word."""
    run = _Run(metric, plan, model, _refused_queries(metric, plan), _null, identifies_words=True)
    nulls: list[NullDistribution] = []
    scored_queries: list[int] = []
    for queries, null in _results(run, progress):
        nulls.append(null)
        scored_queries += queries
    p_values = torch.full((len(plan.names),), torch.nan, dtype=torch.float64, device=model.vectors.device)
    if nulls:
        corrected = max_t_p_values(nulls, metric.alternative, metric.permutations)
        p_values[torch.tensor(scored_queries, device=p_values.device)] = corrected
    return p_values, run.reasons


def _null(metric: BaseMetric, *sets: Vectors) -> NullDistribution:
    return metric.null_distributions(*sets)["p_value"]


def _refused_queries(metric: BaseMetric, plan: QueryPlan) -> Reasons:
    """Return queries of the right template that the metric refuses."""
    reasons: Reasons = {}
    if type(metric).check_query is BaseMetric.check_query and not metric.compares_groups:
        return reasons
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
    plan: QueryPlan
    model: WordEmbeddingModel
    reasons: Reasons
    method: Method
    identifies_words: bool = False

    @property
    def open_queries(self) -> Iterator[int]:
        return (i for i in range(len(self.plan.names)) if i not in self.reasons)

    def evaluate(self, index: IndexedQuery) -> Any:
        return self.method(self.metric, *self.metric.read_sets(index, self.model))


def _results(run: _Run, progress: Progress) -> Iterator[tuple[Sequence[int], Any]]:
    """Yield the queries of each batch and their results; the queries of a batch with a ValueError get a reason."""
    for queries, evaluate in _batches(run):
        try:
            yield queries, evaluate()
        except ValueError as error:
            run.reasons.update(dict.fromkeys(queries, str(error)))
        progress(len(queries))


def _batches(run: _Run) -> Batches:
    """Yield the queries in batches, with a function that evaluates each batch."""
    if not run.metric.batched:
        return (([i], functools.partial(run.metric.run_query, run.plan.query(i), run.model)) for i in run.open_queries)
    return (_paired_batches if run.metric.paired else _set_batches)(run)


def _paired_batches(run: _Run) -> Batches:
    """Yield batches of queries that are looked up one by one, because lost words remove whole tuples."""
    metric, plan, model, reasons = run[:4]
    groups = defaultdict(list)
    for i in run.open_queries:
        try:
            index = metric.look_up(plan.query(i), model)
        except ValueError as error:
            reasons[i] = str(error)
            continue
        if index.reason:
            reasons[i] = index.reason
        else:
            sizes = tuple((sets.longest, sets.word_counts) for sets in index.roles)
            if run.identifies_words:
                targets, attributes = index.roles
                index = replace(index, roles=(targets.identified(index.row_words[0]), attributes))
            groups[_batch_key(metric, index.template, sizes)].append((i, index))
    for (template, _), group in groups.items():
        width = sum(template) * max(max(sets.longest, default=0) for _, index in group for sets in index.roles)
        for start, size in chunks(len(group), width * model.vectors.shape[1], BUDGET):
            queries, indices = zip(*group[start : start + size], strict=True)
            yield queries, functools.partial(run.evaluate, IndexedQuery.stack(indices))


def _set_batches(run: _Run) -> Batches:
    metric, plan, model, reasons = run[:4]
    sets = _SetRows.look_up(metric, plan, model)
    sets.explain(plan, reasons)
    groups = defaultdict(list)
    for i, set_indices in enumerate(zip(plan.targets, plan.attributes, strict=True)):
        if i not in reasons:
            targets, attributes = set_indices
            sizes = [[sets.size(s) for s in indices] for indices in set_indices] if metric.p_value else None
            groups[_batch_key(metric, (len(targets), len(attributes)), sizes)].append(i)
    device, dims = model.vectors.device, model.vectors.shape[1]
    table, mask = padded(sets.rows, device)
    word_ids = sets.identities() if run.identifies_words else sets.word_ids
    words = None if word_ids is None else padded(word_ids, device)[0]
    # The class that defines `measure` may also define `measure_shared`, which computes the same score.
    kind = next(kind for kind in type(metric).__mro__ if {"measure", "measure_shared"} & vars(kind).keys())
    shared = bool(vars(kind).get("measure_shared")) and not metric.p_value and not metric.replicates
    size = mask.shape[1] * dims
    # Sets that are part of many queries are read once, if all of them fit in memory.
    fits_in_memory = shared and len(sets.rows) * max(size, len(sets.rows) * mask.shape[1]) <= BUDGET
    for (template, _), queries in groups.items():
        cost = mask.shape[1] if fits_in_memory else sum(template) * size
        for start, num_queries in chunks(len(queries), cost, BUDGET):
            chunk = queries[start : start + num_queries]
            t, a = ([indices[i] for i in chunk] for indices in (plan.targets, plan.attributes))
            if shared:
                yield chunk, functools.partial(_evaluate_shared, run, table, mask, words, t, a)
            else:
                index = IndexedQuery.of_sets(table, mask, np.array(sets.lengths()), t, a, words)
                yield chunk, functools.partial(run.evaluate, index)


def _batch_key(metric: BaseMetric, template: tuple[int, int], lengths: Any) -> tuple[Any, ...]:
    """Return the key of a query's batch: with p-values also the sizes, as padding would make exact tests random."""
    return template, repr(lengths) if metric.p_value else None


class _SetRows(NamedTuple):
    """Rows of each set of a plan; unusable sets have no rows."""

    rows: list[list[int]]
    keys: list[list[str]]  # key of each row
    word_ids: list[Sequence[int]] | None  # id of each row's word in its set; None: each row is a word
    loss_reasons: dict[int, str]  # set -> reason why it is unusable

    @staticmethod
    def look_up(metric: BaseMetric, plan: QueryPlan, model: WordEmbeddingModel) -> "_SetRows":
        """Look up all sets of a plan as `WordEmbeddingModel.index_query` does."""
        search = model.search(metric.preprocessors, metric.strategy)
        matches = [search.words(members) for members in plan.sets]
        loss_reasons = _loss_reasons(matches, model, metric.lost_vocabulary_threshold)
        rows, keys, ids = list[list[int]](), list[list[str]](), list[Sequence[int] | None]()
        for s, match in enumerate(matches):
            if s in loss_reasons:
                log.warning("the set %s... %s in the model %r", plan.sets[s][:3], loss_reasons[s], model.name)
            elif match.lost and metric.warn_not_found_words:
                log.warning("not in the vocabulary of %r: %s", model.name, ", ".join(match.lost))
            set_rows, row_keys = model._table.indexed_rows([] if s in loss_reasons else match.keys)
            rows.append(set_rows)
            keys.append([match.keys[key] for key in row_keys])
            ids.append(row_word_ids(row_keys, match.origins))
        if all(set_ids is None for set_ids in ids):
            return _SetRows(rows, keys, None, loss_reasons)
        word_ids = [range(len(r)) if set_ids is None else set_ids for r, set_ids in zip(rows, ids, strict=True)]
        return _SetRows(rows, keys, word_ids, loss_reasons)

    def lengths(self) -> list[int]:
        return list(map(len, self.rows))

    def size(self, s: int) -> tuple[int, int | None]:
        """Return the numbers of rows and of words of a set."""
        return len(self.rows[s]), None if self.word_ids is None else len(set(self.word_ids[s]))

    def identities(self) -> list[list[int]]:
        word_ids = self.word_ids or [range(n) for n in self.lengths()]
        return [word_keys(keys, ids) for keys, ids in zip(self.keys, word_ids, strict=True)]

    def explain(self, plan: QueryPlan, reasons: Reasons) -> None:
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


def _loss_reasons(matches: list[WordMatches], model: WordEmbeddingModel, threshold: float) -> dict[int, str]:
    """Return the reasons why sets are unusable, and compute the rows of the other sets."""
    table = model._table
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


def _evaluate_shared(
    run: _Run, table: Tensor, mask: Tensor, words_of_rows: Tensor | None, targets: list, attributes: list
) -> Estimate:
    metric = run.metric
    words, queries = [], []
    for indices in targets, attributes:
        sets, positions = torch.tensor(indices, device=table.device).unique(return_inverse=True)
        vectors = run.model.vectors[table[sets]]
        if metric.normalize:
            vectors = word_sets.unit(vectors.double())
        ids = None if words_of_rows is None or metric.unit == "row" else words_of_rows[sets]
        words.append(word_sets.as_words(vectors, mask[sets], words=ids))
        queries.append(positions)
    assert metric.measure_shared is not None  # see `_set_batches`
    measured = metric.measure_shared(*words, *queries)
    value = next(iter(measured.values()))
    nan = torch.full_like(value, torch.nan)
    return Estimate(value, nan, nan, details=measured)
