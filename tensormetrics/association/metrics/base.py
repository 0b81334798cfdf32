"""`BaseMetric`: an association test as a metric module and as a function of queries in words."""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.results.estimates import Estimate, check_confidence
from ...core.results.plots import steps_of
from ..embeddings.lookup import log
from ..embeddings.query import IndexedQuery, Layouts, Query, Template
from ..resampling.bootstrap import bootstrap_interval
from ..resampling.null_distribution import METHODS, TEST_TYPES, Alternative, Method, NullDistribution, TestType
from ..sets import marks, word_sets
from ..sets.word_sets import Vectors
from ._call import ORDER, Call, bind, check_template
from ._score_sums import ScoreMetric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P_VALUE_OPTIONS = (
    "calculate_p_value",
    "p_value_test_type",
    "p_value_method",
    "p_value_iterations",
    "p_value_seed",
    "p_value_verbose",
)
UNITS = "word", "row"
BOOTSTRAP_OPTIONS = ("replicates", "confidence", "seed")


def plot_value(result: Any) -> Any:
    """Return the value to plot: for a result of `run_query`, its score with interval under the name of the query."""
    if not (isinstance(result, dict) and "query_name" in result):
        return result
    ends = (checks.as_tensor(result.get(key, torch.nan)) for key in ("result", "low", "high"))
    return {result["query_name"]: Estimate(*ends)}


class BaseMetric(ScoreMetric):
    """Base class of association metrics; `metric_template` has the numbers of sets of a query, "n" is one or more.

    A subclass defines `measure(self, *sets)`, which maps sets (..., W, D), tensors or `WordSet`s, to named tensors
    (...), the first of which is the score, and inherits all else: `run_query` for words; `forward`, which returns the
    score of each item with leading dimensions; and `update` and `compute`, the mean of all finite scores. For "n" sets
    `measure` receives one set (..., n, W, D) unless `forms` has another layout, see `IndexedQuery.sets`.

    Alternatively, it overrides only `run_query`, calls `super().run_query(...)`, which checks the arguments, and
    continues with `model.index_query`. A subclass that defines `null_distributions` has `calculate_p_value` and its
    options, one that defines `score_function` has `replicates`, `confidence` and `seed`: see `run_query`.

    >>> class Gap(BaseMetric):
    ...     metric_template, metric_name, metric_short_name = (2, 1), "Gap", "GAP"
    ...
    ...     def measure(self, x, y, a):
    ...         return {"gap": rnd(x, y, a)}
    >>> model = WordEmbeddingModel.from_tensor(torch.eye(3), ["he", "she", "work"])
    >>> Gap().run_query(Query([["he"], ["she"]], [["work"]]), model)["gap"]
    np.float64(0.0)
    """

    metric_template: Template
    metric_name: str
    metric_short_name: str
    is_differentiable = True

    _scores: Tensor

    forms: Layouts | None = None  # layouts of the sets for `measure`; None: the template
    sums_over_words = False  # True if more rows per word give a larger score with unit="row"
    paired = False  # whether sets are aligned by position
    by_position = True  # whether run_query accepts its options by position
    result_keys: dict[str, type] = {}  # keys after `result` in a result dictionary: float or dict
    call_options: tuple[str, ...] = ORDER  # arguments of run_query in addition to the options of the constructor
    no_score = "a vector is not finite"  # reason why a query without lost words may have no score

    # Options of metrics that define `null_distributions`.
    calculate_p_value = False
    p_value_test_type: TestType = "right-sided"
    p_value_method: Method = "auto"
    p_value_iterations = 10000
    p_value_seed: int | None = 0
    p_value_verbose = False

    confidence = 0.95  # for metrics that define `score_function`
    unit: Literal["word", "row"] = "word"  # the unit of equal weight in a score

    def __init__(self, *, replicates: int = 0, seed: int = 0, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in self._shared_options() if name in kwargs}
        super().__init__(replicates=replicates, seed=seed, **kwargs)
        for name, value in options.items():
            setattr(self, name, value)
        self._check_shared_options()
        if self.calculate_p_value and "p_value_by_word" not in self.result_keys:
            self.result_keys = {**self.result_keys, "p_value": float}
        if self.replicates and "replicates" in self._shared_options():
            self.result_keys = {**self.result_keys, "low": float, "high": float}

    def measure(self, *sets: Any) -> dict[str, Tensor]:
        # sets: (..., W, D) each, with the layouts of `forms`  ->  name: (...)
        raise NotImplementedError(f"{type(self).__name__} defines no measure(self, *sets)")

    def score(self, *sets: Any) -> Tensor:
        # sets: as in `measure`  ->  (...)
        """Return the first value of `measure`, if possible without the others."""
        return next(iter(self.measure(*sets).values()))

    def null_distributions(self, *sets: Any) -> dict[str, NullDistribution]:
        """Return the null distribution of `p_value` (...), or of `p_value_by_word` (..., W), of the same sets."""
        raise NotImplementedError(f"{type(self).__name__} has no p-value")

    def p_values(self, *sets: Any) -> dict[str, Tensor]:
        """Compute the p-values of `null_distributions` by the metric's options."""
        test = self._alternative, self.p_value_method, self.p_value_iterations
        return {name: null.p_value(*test) for name, null in self.null_distributions(*sets).items()}

    def score_function(self) -> Callable[..., Tensor]:
        """Return the score as a function of the same arguments, for `bootstrap_interval`."""
        raise NotImplementedError(f"{type(self).__name__} has no score_function")

    # measure_shared(targets, attributes, t, a): the same scores as `measure` for many queries that share sets. Targets
    # (T, W, D) and attributes (A, W, D) are `Words`; t and a (Q, sets) are the set indices of each query  ->  (Q,)
    measure_shared: Callable[..., dict[str, Tensor]] | None = None

    @property
    def batched(self) -> bool:
        """Whether `evaluate` computes the results of `run_query` for a batch of queries in one call."""
        return type(self).run_query is BaseMetric.run_query

    def update(self, *sets: Any, ids: Any = None, groups: Any = None) -> None:
        """Add the scores of a batch of queries; `ids` and `groups` are for `interval`, as in `Uncertain`.

        Shapes: sets: (..., W, D), tensors or `WordSet`s; ids, groups: (queries,).
        """
        self._scores = self.score(*self._counted(sets))
        self.add_scores(self._scores, ids, groups)

    def batch_value(self) -> Tensor:
        return self._scores

    @torch.no_grad()
    def run_query(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Score a query in words: `run_query(query, model, lost_vocabulary_threshold=0.2, ...)`.

        Further options, by name: `preprocessors=[{}]`, `strategy="first"` (see `WordEmbeddingModel.index_query`),
        `normalize=False` (unit vectors), `warn_not_found_words=False`, and options of the constructor, for this call.
        `calculate_p_value=True` adds the `p_value` of a permutation test: `p_value_test_type="right-sided"` ("left-",
        "two-sided"), `p_value_method="auto"` ("exact", "approximate"), `p_value_iterations=10000`, `p_value_seed=0`;
        `p_value_verbose=True` prints it.
        `replicates=1000` adds `low` and `high`, the bounds of a bootstrap interval of `confidence=0.95` by `seed=0`.
        A word counts once in a score, with the mean over its rows (templates, contexts); `unit="row"` counts every row,
        as in SEAT. P-values and intervals always resample words.
        Returns `query_name`, `result` and the keys of the metric, as float64 or dictionaries by word; NaN and {} for a
        query that lost too many words. If a subclass overrides it, it checks the arguments and returns {}.
        """
        metric, call = self.bind(*args, **options)
        metric.check_query(call.query)
        if type(self).run_query is not BaseMetric.run_query:
            return {}
        if type(self).measure is BaseMetric.measure:
            raise NotImplementedError(f"{type(self).__name__} defines neither measure nor run_query")
        return metric._run(call)

    def plot(self, val: Any = None, ax: "Axes | None" = None) -> "tuple[Figure, Axes]":
        """Plot as every metric does; `val` may be a result of `run_query`: its score, with an interval if it has one.

        A list of results is a list of steps, such as epochs.
        """
        results = [plot_value(result) for result in steps_of(self.compute() if val is None else val)]
        return super().plot(results, ax)

    def bind(self, *args: Any, **options: Any) -> "tuple[BaseMetric, Call]":
        """Return the metric with the options of a call of `run_query`, and the other arguments, checked."""
        call, metric_options = bind(self.metric_short_name, self._option_names(), self.by_position, args, options)
        return self._with(metric_options), call

    def _run(self, call: Call) -> dict[str, Any]:
        index = call.look_up(self.paired)
        if index.reason:
            entries: dict[str, Any] = {
                key: np.float64(np.nan) if kind is float else {} for key, kind in self.result_keys.items()
            }
            return {"query_name": call.query.query_name, "result": np.float64(np.nan), **entries}
        values = to_host(self.evaluate(*self.read_sets(index, call)))
        result = next(iter(values.values()))
        if np.isnan(result):
            log.warning("%r has no score in the model %r: %s", call.query.query_name, call.model.name, self.no_score)
        values.pop("result", None)
        entries = self.describe(values, index)
        entries |= {key: np.float64(values[key]) for key in ("p_value", "low", "high") if key in values}
        entries = {key: entries[key] for key in self.result_keys if key in entries} | entries  # in the order declared
        if self.p_value_verbose:
            p_values = {key: value for key, value in entries.items() if key.startswith("p_value")}
            print(f"{self.metric_short_name}, {call.query.query_name}, {self.p_value_test_type}: {p_values}")
        return {"query_name": call.query.query_name, "result": np.float64(result), **entries}

    def evaluate(self, *sets: Vectors) -> dict[str, Tensor]:
        """Compute the values of `measure`, and the p-values and the interval that the options request.

        Shapes: as in `measure` -> name: (...).
        """
        measured = self.measure(*self._counted(sets))
        if self.calculate_p_value:
            measured |= self.p_values(*sets)
        if self.replicates and "replicates" in self._shared_options():
            measured |= self._interval_ends(*sets)
        return measured

    def _interval_ends(self, *sets: Vectors) -> dict[str, Tensor]:
        """Compute the bounds of the bootstrap interval with the metric's options, as `low` and `high`."""
        score = self.score_function()
        interval = bootstrap_interval(
            score if self.unit == "word" else marks.by_row(score),
            *sets,
            replicates=self.replicates,
            confidence=self.confidence,
            seed=self.seed,
        )
        ends = {"low": interval.low, "high": interval.high}
        if "corrected" in interval.details:
            ends[f"{next(iter(self.result_keys))}_corrected"] = interval.details["corrected"]
        return ends

    def _counted(self, sets: Sequence[Any]) -> Sequence[Any]:
        """Return the sets for `measure`: with `unit="row"` each row is a word."""
        return sets if self.unit == "word" else tuple(map(marks.without_words, sets))

    def arguments(self, index: IndexedQuery, vectors: Tensor) -> tuple[Vectors, ...]:
        """Return the arguments of `forward`, `update` and `measure` for an indexed query.

        Shapes: vectors: (..., V, D).
        """
        return index.sets(vectors, self.forms or self.metric_template)

    def read_sets(self, index: IndexedQuery, call: Call) -> tuple[Vectors, ...]:
        """Return the `arguments` of a query in the call's model, as unit vectors if requested."""
        sets = self.arguments(index, call.model.vectors)
        return tuple(map(word_sets.unit_set, sets)) if call.normalize else sets

    def check_query(self, query: Query) -> None:
        """Raise a ValueError for a query with the wrong number of sets."""
        check_template(query, self.metric_template, self.metric_short_name)

    def describe(self, values: dict[str, np.ndarray], index: IndexedQuery) -> dict[str, Any]:
        """Convert the values of `measure` for one query to the metric's entries of a result dictionary."""
        missing = {key: np.float64(np.nan) for key, kind in self.result_keys.items() if kind is float}
        return missing | {key: np.float64(value) if value.ndim == 0 else value for key, value in values.items()}

    @classmethod
    @functools.cache
    def _option_names(cls) -> tuple[str, ...]:
        """Return the options of the constructors, which `run_query` also accepts."""
        constructors = [vars(kind)["__init__"] for kind in cls.__mro__ if "__init__" in vars(kind)]
        constructors = constructors[: constructors.index(BaseMetric.__init__)]
        parameters = [p for c in constructors for p in inspect.signature(c).parameters.values()]
        return (*(p.name for p in parameters if p.kind is p.KEYWORD_ONLY), *cls._shared_options())

    @classmethod
    def has_p_value(cls) -> bool:
        """Return whether a query has one p-value instead of one per word."""
        return "p_value_by_word" not in cls.result_keys and "calculate_p_value" in cls._shared_options()

    @classmethod
    def _shared_options(cls) -> tuple[str, ...]:
        p_value_options = () if cls.null_distributions is BaseMetric.null_distributions else P_VALUE_OPTIONS
        bootstrap_options = () if cls.score_function is BaseMetric.score_function else BOOTSTRAP_OPTIONS
        return ("unit", *p_value_options, *bootstrap_options)

    def _check_shared_options(self) -> None:
        for name in ("calculate_p_value", "p_value_verbose"):
            checks.check_flag(name, getattr(self, name))
        checks.check_choice("p_value_test_type", self.p_value_test_type, tuple(TEST_TYPES))
        checks.check_choice("p_value_method", self.p_value_method, METHODS)
        checks.check_int("p_value_iterations", self.p_value_iterations, 1)
        checks.check_choice("unit", self.unit, UNITS)
        check_confidence(self.confidence)
        if self.p_value_seed is not None:
            checks.check_int("p_value_seed", self.p_value_seed, 0)

    @property
    def _alternative(self) -> Alternative:
        return TEST_TYPES[self.p_value_test_type]

    def _with(self, options: dict[str, Any]) -> "BaseMetric":
        """Return this metric, or another one with some options changed."""
        if not options:
            return self
        all_options = {name: getattr(self, name) for name in self._option_names()} | options
        try:
            return _made(type(self), **all_options)
        except TypeError:  # options that cannot be hashed, or are wrong
            return type(self)(**all_options)

    def _check_input(
        self, query: Any, model: Any, lost_vocabulary_threshold: Any = 0.2, warn_not_found_words: Any = False
    ) -> None:
        Call.checked(query, model, lost_vocabulary_threshold, warn_not_found_words=warn_not_found_words)
        self.check_query(query)


@functools.lru_cache(maxsize=32, typed=True)
def _made(cls: type[BaseMetric], **options: Any) -> BaseMetric:
    """Return a metric with changed options, cached because constructing it takes longer than a small query."""
    return cls(**options)


def to_host(values: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Copy all tensors to the host in one transfer."""
    if all(value.is_cpu for value in values.values()):
        return {name: value.detach().double().numpy() for name, value in values.items()}
    flat = torch.cat([value.flatten() for value in values.values()]).detach().double().cpu().numpy()
    arrays, start = {}, 0
    for name, value in values.items():
        stop = start + value.numel()
        arrays[name], start = flat[start:stop].reshape(value.shape), stop
    return arrays


def by_set(row_words: Sequence[list[str]], values: np.ndarray) -> Iterator[tuple[list[str], np.ndarray]]:
    # values: (sum of W, ...), of the words of all sets concatenated
    start = 0
    for words in row_words:
        yield words, values[start : start + len(words)]
        start += len(words)


def by_word(words: Sequence[str], values: np.ndarray) -> dict[str, np.float64]:
    # values: (W,)
    """Return word -> value; the mean if a word has several rows."""
    value_by_word = dict(zip(words, values, strict=False))
    if len(value_by_word) == len(words):
        return value_by_word
    rows: dict[str, list[np.float64]] = {}
    for word, value in zip(words, values, strict=False):
        rows.setdefault(word, []).append(value)
    return {word: np.float64(np.mean(row_values)) for word, row_values in rows.items()}
