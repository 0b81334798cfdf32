"""One model's scores of many queries: words are looked up once per set, queries are scored in batches."""

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

BUDGET = 2**22  # float64 numbers of word vectors held at a time

Reasons = dict[int, str]  # query -> why it has no score
Progress = Callable[[int], Any]


def looped_scores(
    metric: BaseMetric,
    plan: Plan,
    model: WordEmbeddingModel,
    options: dict[str, Any],
    wanted: Sequence[str],
    progress: Progress,
) -> tuple[Tensor, Reasons]:
    # ->  (K, Q) float64
    """The K numbers `wanted` of the result dictionary of each query. A ValueError costs its own query alone."""
    scores: list[list[float]] = []
    reasons = {}
    for i in range(len(plan.names)):
        try:
            result = metric.run_query(plan.query(i), model, **options)
        except ValueError as error:
            scores.append([math.nan] * len(wanted))
            reasons[i] = str(error)
        else:
            if not isinstance(result, dict) or not {"query_name", *wanted} <= result.keys():
                got = sorted(result) if isinstance(result, dict) else type(result).__name__
                keys = " and ".join(map(repr, ("query_name", *wanted)))
                raise TypeError(f"{metric.metric_short_name}.run_query: got {got}, wanted {keys}")
            scores.append([float(result[key]) for key in wanted])
            if math.isnan(scores[-1][0]):
                reasons[i] = _why(metric, plan.query(i), model, options)
        progress(1)
    return torch.tensor(scores, dtype=torch.float64, device=model.vectors.device).mT, reasons


def _why(metric: BaseMetric, query: Query, model: WordEmbeddingModel, options: dict[str, Any]) -> str:
    _, call = metric.bind(query, model, **{name: options[name] for name in options.keys() & {*metric.call_options}})
    own = type(metric).run_query is not BaseMetric.run_query
    return call.look_up(False).reason or (f"{metric.metric_short_name}.run_query gave NaN" if own else metric.no_score)


def batched_scores(
    metric: BaseMetric, plan: Plan, call: Call, wanted: Sequence[str], progress: Progress
) -> tuple[Tensor, Reasons]:
    # ->  (K, Q) float64
    """The same by `evaluate`, in batches; `call` holds the model and the rules of look-up."""
    reasons = _misfits(metric, plan)
    scores = torch.full(
        (len(wanted), len(plan.names)), torch.nan, dtype=torch.float64, device=call.model.vectors.device
    )
    for queries, evaluate in _batches(_Run(metric, plan, call, reasons, BaseMetric.evaluate)):
        try:
            values = evaluate()
        except ValueError as error:
            reasons |= dict.fromkeys(queries, str(error))
        else:
            values.setdefault("result", next(iter(values.values())))
            for row, key in zip(scores, wanted, strict=True):
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
    """The p-values of all queries at once, from scores under the null hypothesis that are drawn together by word."""
    reasons, nulls = _misfits(metric, plan), []
    asked: list[int] = []
    for queries, null in _batches(_Run(metric, plan, call, reasons, _null, identifies_words=True)):
        try:
            nulls.append(null())
        except ValueError as error:
            reasons |= dict.fromkeys(queries, str(error))
        else:
            asked += queries
        progress(len(queries))
    p_values = torch.full((len(plan.names),), torch.nan, dtype=torch.float64, device=call.model.vectors.device)
    if nulls:
        found = max_t_p_values(nulls, metric._alternative, metric.p_value_iterations)
        p_values[torch.tensor(asked, device=p_values.device)] = found
    return p_values[None], reasons


def _null(metric: BaseMetric, *sets: Vectors) -> NullDistribution:
    return metric.null_distributions(*sets)["p_value"]


def _misfits(metric: BaseMetric, plan: Plan) -> Reasons:
    """Queries with the right template that the metric refuses all the same."""
    if type(metric).check_query is BaseMetric.check_query:
        return {}
    reasons = {}
    for i in range(len(plan.names)):
        try:
            metric.check_query(plan.query(i))
        except ValueError as error:
            reasons[i] = str(error)
    return reasons


Method = Callable[..., Any]  # of a metric: `evaluate` or `_null`
Batches = Iterator[tuple[Sequence[int], Callable[[], Any]]]  # queries, and a function for what it answers


class _Run(NamedTuple):
    """A method of a metric for the queries of a plan in one model; `reasons` grows by the queries it cannot take.

    With `identifies_words` the rows of target words are numbered by `word_key`, in all queries alike.
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
    """What the method answers for the queries, in batches."""
    return (_paired_batches if run.metric.paired else _set_batches)(run)


def _paired_batches(run: _Run) -> Batches:
    """Tuples are looked up for each query, because they are lost as wholes."""
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
            sizes = tuple((side.longest, side.word_counts) for side in index.sides)
            index = index.with_words_identified() if run.identifies_words else index
            groups[_kind(metric, index.template, sizes)].append((i, index))
    for (template, _), group in groups.items():
        places = sum(template) * max(max(side.longest, default=0) for _, index in group for side in index.sides)
        for piece in _pieces(group, places * call.model.vectors.shape[1]):
            queries, indices = zip(*piece, strict=True)
            yield queries, functools.partial(run.evaluate_stacked, indices)


def _set_batches(run: _Run) -> Batches:
    metric, plan, call, reasons = run[:4]
    sets = _SetRows.look_up(plan, call)
    sets.explain(plan, reasons)
    groups = defaultdict(list)
    for i, sides in enumerate(zip(plan.targets, plan.attributes, strict=True)):
        if i not in reasons:
            targets, attributes = sides
            sizes = [[sets.size(s) for s in side] for side in sides] if metric.calculate_p_value else None
            groups[_kind(metric, (len(targets), len(attributes)), sizes)].append(i)
    device, dims = call.model.vectors.device, call.model.vectors.shape[1]
    table, mask = padded(sets.rows, device)
    numbers = sets.identities() if run.identifies_words else sets.numbers
    words = None if numbers is None else padded(numbers, device)[0]
    shared = _shares(metric) and not metric.calculate_p_value and not metric.replicates
    place = mask.shape[1] * dims
    # Sets that stand in many queries are read once, if all of them fit.
    together = shared and len(sets.rows) * max(place, len(sets.rows) * mask.shape[1]) <= BUDGET
    for (template, _), queries in groups.items():
        for piece in _pieces(queries, mask.shape[1] if together else sum(template) * place):
            t, a = ([side[i] for i in piece] for side in (plan.targets, plan.attributes))
            if shared:
                yield piece, functools.partial(_evaluate_shared, metric, table, mask, words, t, a, call)
            else:
                index = IndexedQuery.of_sets(table, mask, np.array(sets.lengths()), t, a, words)
                yield piece, functools.partial(run.evaluate, index)


def _shares(metric: BaseMetric) -> bool:
    """Is `measure_shared` of the class that `measure` is of? Who overrides only the latter means another score."""
    first = next(kind for kind in type(metric).__mro__ if {"measure", "measure_shared"} & vars(kind).keys())
    return vars(first).get("measure_shared") is not None


def _kind(metric: BaseMetric, template: tuple[int, int], lengths: Any) -> tuple[Any, ...]:
    """What queries of one batch have in common: with p-values also the sizes, as padding makes exact ones drawn."""
    return template, repr(lengths) if metric.calculate_p_value else None


def _pieces(items: Sequence[Any], cost: int) -> Iterator[Sequence[Any]]:
    size = max(1, BUDGET // max(cost, 1))
    for start in range(0, len(items), size):
        yield items[start : start + size]


class _SetRows(NamedTuple):
    """The rows of each set of a plan, none of a set that is unusable."""

    rows: list[list[int]]
    keys: list[list[str]]  # of each row
    numbers: list[Sequence[int]] | None  # of each row's word in its set; None: each row is one
    troubles: dict[int, str]  # set -> why it is unusable

    @staticmethod
    def look_up(plan: Plan, call: Call) -> "_SetRows":
        """See `WordEmbeddingModel.index_query`."""
        model = call.model
        found = [call.search.words(members) for members in plan.sets]
        troubles = _troubles(found, call)
        _log_losses(plan, found, troubles, call)
        places = [model._table.indexed_rows([] if s in troubles else each.keys) for s, each in enumerate(found)]
        rows, keys = [rows for rows, _ in places], [of_rows for _, of_rows in places]
        given = [row_word_ids(of_rows, each.origins) for of_rows, each in zip(keys, found, strict=True)]
        numbers = [range(len(own)) if number is None else number for own, number in zip(rows, given, strict=True)]
        return _SetRows(
            rows,
            [[each.keys[key] for key in of_rows] for of_rows, each in zip(keys, found, strict=True)],
            None if all(number is None for number in given) else numbers,
            troubles,
        )

    def lengths(self) -> list[int]:
        return list(map(len, self.rows))

    def size(self, s: int) -> tuple[int, int | None]:
        """Return how many rows and how many words a set has."""
        return len(self.rows[s]), None if self.numbers is None else len(set(self.numbers[s]))

    def identities(self) -> list[list[int]]:
        numbers = self.numbers or [range(n) for n in self.lengths()]
        return [word_keys(keys, number) for keys, number in zip(self.keys, numbers, strict=True)]

    def explain(self, plan: Plan, reasons: Reasons) -> None:
        """Add the queries that have an unusable set to the reasons."""
        for i, sides in enumerate(zip(plan.targets, plan.attributes, strict=True)):
            found = [
                f"{label!r} {self.troubles[s]}"
                for numbers, labels in zip(sides, plan.labels[i], strict=True)
                for s, label in zip(numbers, labels, strict=True)
                if s in self.troubles
            ]
            if found:
                reasons.setdefault(i, "; ".join(found))


def _troubles(found: list[WordMatches], call: Call) -> dict[int, str]:
    """Return why sets are unusable, and make the rows of the others."""
    table, threshold = call.model._table, call.lost_vocabulary_threshold
    troubles = {s: trouble for s, each in enumerate(found) if (trouble := each.loss_reason(threshold))}
    usable = {s: each.keys for s, each in enumerate(found) if s not in troubles}
    try:
        table.add(chain.from_iterable(usable.values()))
    except ValueError:  # an encoder refused a text, which is the trouble of its own sets alone
        for s, keys in usable.items():
            try:
                table.add(keys)
            except ValueError as error:
                troubles[s] = f"has a word without a vector ({error})"
    return troubles


def _log_losses(plan: Plan, found: list[WordMatches], troubles: dict[int, str], call: Call) -> None:
    for s, each in enumerate(found):
        if s in troubles:
            log.warning("the set %s... %s in the model %r", plan.sets[s][:3], troubles[s], call.model.name)
        elif each.lost and call.warn_not_found_words:
            log.warning("not in the vocabulary of %r: %s", call.model.name, ", ".join(each.lost))


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
    for numbers in targets, attributes:
        sets, chosen = torch.tensor(numbers, device=table.device).unique(return_inverse=True)
        vectors = call.model.vectors[table[sets]]
        if call.normalize:
            vectors = word_sets.unit(vectors.double())
        own = None if words_of_rows is None or metric.unit == "row" else words_of_rows[sets]
        words.append(word_sets.as_words(vectors, mask[sets], words=own))
        queries.append(chosen)
    assert metric.measure_shared is not None  # see `_shares`
    return metric.measure_shared(*words, *queries)
