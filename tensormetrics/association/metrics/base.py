"""`BaseMetric`: an association test as a metric module and as a function of queries in words."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack  # torch brings it

from ...core.arguments import checks
from ...core.metric.base import Options
from ...core.results.estimates import Estimate, check_confidence
from ..embeddings.lookup import UNCHANGED, PreprocessorArgs, Strategy, WordSearch, check_threshold, log
from ..embeddings.model import WordEmbeddingModel, check_model
from ..embeddings.query import IndexedQuery, Layouts, Query, Template, check_query
from ..resampling.bootstrap import bootstrap_interval
from ..resampling.null_distribution import ALTERNATIVES, METHODS, Alternative, Method, NullDistribution
from ..sets import marks, word_sets
from ..sets.word_sets import Vectors
from ._score_sums import MeanScore

Unit = Literal["word", "row"]


class AssociationOptions(Options, total=False):
    """Keyword arguments of every association metric; see `BaseMetric`."""

    lost_vocabulary_threshold: float
    preprocessors: list[PreprocessorArgs]
    strategy: Strategy
    normalize: bool
    warn_not_found_words: bool
    unit: Unit
    p_value: bool
    alternative: Alternative
    method: Method
    permutations: int
    replicates: int | None
    confidence: float
    seed: int


class BaseMetric(MeanScore):
    """Base class of association metrics; `metric_template` has the numbers of sets of a query, "n" is one or more.

    A subclass defines `measure(self, *sets)`, which maps sets (..., W, D), tensors or `WordSet`s, to named tensors
    (...), the first of which is the score, and inherits all else: `run_query` for words; `forward`, which returns the
    score of each item with leading dimensions; and `update` and `compute`, the mean of all finite scores. For "n" sets
    `measure` receives one set (..., n, W, D) unless `forms` has another layout, see `IndexedQuery.sets`. A subclass
    that defines `null_distributions` has p-values. One whose `score_function` returns the score as a function of the
    same sets has intervals over words; it is `function` with the metric's values of `function_options`, if declared.

    Args:
        lost_vocabulary_threshold: Largest fraction of a set's words that may be missing in a model.
        preprocessors: Changes of words that are tried in turn; see `WordEmbeddingModel.index_query`.
        strategy: ``"first"`` uses the first form of a word that is in the vocabulary, ``"all"`` every form.
        normalize: Whether vectors are scaled to length 1.
        warn_not_found_words: Whether lost words are logged.
        unit: ``"word"``: a word counts once in a score, with the mean over its rows (templates, contexts). ``"row"``:
            every row counts, as in SEAT. P-values and intervals always resample words.
        p_value: Whether `run_query` also gives the ``p_value`` of a permutation test.
        alternative: Side of this test: ``"greater"``, ``"less"`` or ``"two-sided"``.
        method: ``"exact"`` counts all permutations, ``"approximate"`` draws them, ``"auto"``: exact if that is fast.
        permutations: Number of drawn permutations.
        replicates: Number of draws of the bootstrap interval of `run_query`, and of `interval`; 0: no interval. By
            default `run_query` has none, and `interval` draws when it is called.
        confidence: Mass of the interval of `run_query`, in (0, 1).
        seed: Seed of permutations and replicates.

    Example:
        >>> class Gap(BaseMetric):
        ...     metric_template, metric_name, metric_short_name = (2, 1), "Gap", "GAP"
        ...
        ...     def measure(self, x, y, a):
        ...         return {"gap": rnd(x, y, a)}
        >>> model = WordEmbeddingModel.from_tensor(torch.eye(3), ["he", "she", "work"])
        >>> Gap().run_query(Query([["he"], ["she"]], [["work"]]), model).value
        tensor(0., dtype=torch.float64)
    """

    metric_template: Template
    metric_name: str
    metric_short_name: str
    is_differentiable = True
    model_options = (
        *MeanScore.model_options,
        *("lost_vocabulary_threshold", "preprocessors", "strategy", "warn_not_found_words"),
        *("p_value", "alternative", "method", "permutations", "confidence"),
    )

    _scores: Tensor

    function: Callable[..., Tensor] | None = None  # a static method
    function_options: tuple[str, ...] = ()
    compares_groups = False  # True for at least two attribute sets and, with "n" target sets, as many
    forms: Layouts | None = None  # layouts of the sets for `measure`; None: the template
    sums_over_words = False  # True if more rows per word give a larger score with unit="row"
    paired = False  # whether sets are aligned by position
    values_by_word: dict[str, int] = {}  # values (..., W) of words of the first target set (0) or attribute set (1)
    no_score = "a vector is not finite"  # reason why a query without lost words may have no score

    def __init__(
        self,
        *,
        lost_vocabulary_threshold: float = 0.2,
        preprocessors: list[PreprocessorArgs] = UNCHANGED,
        strategy: Strategy = "first",
        normalize: bool = False,
        warn_not_found_words: bool = False,
        unit: Unit = "word",
        p_value: bool = False,
        alternative: Alternative = "greater",
        method: Method = "auto",
        permutations: int = 10000,
        replicates: int | None = None,
        confidence: float = 0.95,
        seed: int = 0,
        **kwargs: Unpack[Options],
    ) -> None:
        super().__init__(replicates=replicates, seed=seed, **kwargs)
        check_threshold(lost_vocabulary_threshold)
        WordSearch((), None, preprocessors, strategy)  # which checks both
        flags = {"normalize": normalize, "warn_not_found_words": warn_not_found_words, "p_value": p_value}
        for name, flag in flags.items():
            checks.check_flag(name, flag)
        if p_value and type(self).null_distributions is BaseMetric.null_distributions:
            raise ValueError(f"p_value: got True, but {type(self).__name__} has no null_distributions; leave it out")
        checks.check_choice("alternative", alternative, ALTERNATIVES)
        checks.check_choice("method", method, METHODS)
        checks.check_choice("unit", unit, get_args(Unit))
        self.lost_vocabulary_threshold, self.preprocessors = lost_vocabulary_threshold, preprocessors
        self.strategy, self.normalize, self.warn_not_found_words = strategy, normalize, warn_not_found_words
        self.unit, self.p_value, self.alternative, self.method = unit, p_value, alternative, method
        self.permutations = checks.check_int("permutations", permutations, 1)
        self.confidence = check_confidence(confidence)

    def measure(self, *sets: Any, **_: Any) -> dict[str, Tensor]:  # with `**_: Any` overrides may name their sets
        # sets: (..., W, D) each, with the layouts of `forms`  ->  name: (...)
        raise NotImplementedError(f"{type(self).__name__} defines no measure(self, *sets)")

    def score(self, *sets: Any) -> Tensor:
        # sets: as in `measure`  ->  (...)
        """Return the first value of `measure`, if possible without the others."""
        if self.has_score_function:
            return self.score_function()(*sets)
        return next(iter(self.measure(*sets).values()))

    def null_distributions(self, *sets: Any) -> dict[str, NullDistribution]:
        """Return the null distribution of `p_value` (...), or of `p_value_by_word` (..., W), of the same sets.

        Attribute words are not permuted.
        """
        raise NotImplementedError(f"{type(self).__name__} has no p-value")

    def p_values(self, *sets: Any) -> dict[str, Tensor]:
        """Compute the p-values of `null_distributions` by the metric's options."""
        test = self.alternative, self.method, self.permutations
        return {name: null.p_value(*test) for name, null in self.null_distributions(*sets).items()}

    def score_function(self) -> Callable[..., Tensor]:
        """Return the score as a function of the same arguments, for `bootstrap_interval`."""
        if self.function is None:
            raise NotImplementedError(f"{type(self).__name__} has no score_function")
        options = {name: getattr(self, name) for name in self.function_options}
        return functools.partial(self.function, **options) if options else self.function

    @property
    def has_score_function(self) -> bool:
        return self.function is not None or type(self).score_function is not BaseMetric.score_function

    # measure_shared(targets, attributes, t, a): the same scores as `measure` for many queries that share sets. Targets
    # (T, W, D) and attributes (A, W, D) are `Words`; t and a (Q, sets) are the set indices of each query  ->  (Q,)
    measure_shared: Callable[..., dict[str, Tensor]] | None = None

    @property
    def batched(self) -> bool:
        """Whether `evaluate` computes the results of `run_query` for a batch of queries in one call."""
        return type(self).run_query is BaseMetric.run_query

    @classmethod
    def has_p_value(cls) -> bool:
        """Return whether a query has one p-value instead of none or one per word."""
        has_test = cls.null_distributions is not BaseMetric.null_distributions
        return has_test and "p_value_by_word" not in cls.values_by_word

    @property
    def has_intervals(self) -> bool:
        """Whether `evaluate` computes intervals over words."""
        return bool(self.replicates) and self.has_score_function

    def update(self, *sets: Any, ids: Any = None, groups: Any = None) -> None:
        """Add the scores of a batch of queries; `ids` and `groups` are for `interval`, as in `Uncertain`.

        Shapes: sets: (..., W, D), tensors or `WordSet`s; ids, groups: (queries,).
        """
        self._scores = self.score(*self._counted(sets))
        self.add_scores(self._scores, ids, groups)

    def batch_value(self) -> Tensor:
        return self._scores

    @torch.no_grad()
    def run_query(self, query: Query, model: WordEmbeddingModel) -> Estimate:
        """Score a query in words.

        Args:
            query: Target and attribute sets.
            model: Vectors of words.

        Returns:
            The score under the name of the query, with its interval if the metric has `replicates`, else NaN. `details`
            has the values of `measure` and the p-value by name, those of words as dictionaries; `words` and `lost`, the
            words found and lost, for targets and attributes, set by set; and, if the score is NaN, the `reason`. All
            tensors are on the host.

        Raises:
            ValueError: If the query has the wrong number of sets.
        """
        check_query(query)
        check_model(model)
        self.check_query(query)
        index = self.look_up(query, model)
        details: dict[str, Any] = {"words": index.words, "lost": index.lost}
        if index.reason:
            nan = torch.tensor(torch.nan, dtype=torch.float64, device="cpu")
            return Estimate(nan, nan, nan, name=query.query_name, details={"reason": index.reason, **details})
        estimate = _on_host(self.evaluate(*self.read_sets(index, model)))
        if estimate.value.isnan():
            log.warning("%r has no score in the model %r: %s", query.query_name, model.name, self.no_score)
            details = {"reason": self.no_score, **details}
        return replace(estimate, name=query.query_name, details=self.describe(estimate.details, index) | details)

    def evaluate(self, *sets: Vectors) -> Estimate:
        """Compute the score, its interval, and in `details` the values of `measure` and the p-values.

        Shapes: as in `measure` -> (...).
        """
        measured = self.measure(*self._counted(sets))
        value = next(iter(measured.values()))
        if self.p_value:
            measured |= self.p_values(*sets)
        if not self.has_intervals:
            nan = torch.full_like(value, torch.nan)
            return Estimate(value, nan, nan, details=measured)
        interval = self._interval_over_words(*sets)
        ends = torch.fmin(interval.low, value), torch.fmax(interval.high, value)
        return replace(interval, value=value, low=ends[0], high=ends[1], details={**measured, **interval.details})

    def _interval_over_words(self, *sets: Vectors) -> Estimate:
        score = self.score_function()
        score = score if self.unit == "word" else marks.by_row(score)
        options: dict[str, Any] = {"replicates": self.replicates, "confidence": self.confidence, "seed": self.seed}
        return bootstrap_interval(score, *sets, **options)

    def _counted(self, sets: Sequence[Any]) -> Sequence[Any]:
        """Return the sets for `measure`: with `unit="row"` each row is a word."""
        return sets if self.unit == "word" else tuple(map(marks.without_words, sets))

    def arguments(self, index: IndexedQuery, vectors: Tensor) -> tuple[Vectors, ...]:
        """Return the arguments of `forward`, `update` and `measure` for an indexed query.

        Shapes: vectors: (..., V, D).
        """
        return index.sets(vectors, self.forms or self.metric_template)

    def look_up(self, query: Query, model: WordEmbeddingModel) -> IndexedQuery:
        """Look up the words of a query by the metric's options."""
        return model.index_query(
            query,
            lost_vocabulary_threshold=self.lost_vocabulary_threshold,
            preprocessors=self.preprocessors,
            strategy=self.strategy,
            paired=self.paired,
            warn_not_found_words=self.warn_not_found_words,
        )

    def read_sets(self, index: IndexedQuery, model: WordEmbeddingModel) -> tuple[Vectors, ...]:
        """Return the `arguments` of a query in a model, as unit vectors with `normalize`."""
        sets = self.arguments(index, model.vectors)
        return tuple(map(word_sets.unit_set, sets)) if self.normalize else sets

    def check_query(self, query: Query) -> None:
        """Raise a ValueError for a query with the wrong number of sets."""
        check_template(query, self.metric_template, self.metric_short_name)
        targets, attributes = query.template
        equal = self.metric_template[0] == "n"
        if self.compares_groups and (attributes < 2 or (equal and targets != attributes)):
            expected = "equally many, at least 2" if equal else "at least 2 attribute sets"
            raise ValueError(
                f"query: {query.query_name!r} has {targets} target and {attributes} attribute sets, wanted {expected} "
                f"for the metric {self.metric_short_name}"
            )

    def describe(self, values: dict[str, Tensor], index: IndexedQuery) -> dict[str, Any]:
        # values: () each, those of words (W,)
        """Return the values of one query with those of words as dictionaries."""
        roles = self.values_by_word
        return {
            name: by_word(index.row_words[roles[name]][0], value) if name in roles else value
            for name, value in values.items()
        }


def check_template(query: Query, template: Template, metric: str) -> None:
    for role, got, expected in zip(("target", "attribute"), query.template, template, strict=True):
        if got != expected and not (expected == "n" and got):
            requested = "one or more" if expected == "n" else expected
            raise ValueError(
                f"query: {query.query_name!r} has {got} {role} sets, wanted {requested} for the metric {metric}"
            )


def _on_host(estimate: Estimate) -> Estimate:
    """Copy all tensors of an estimate to the host, as float64, in one transfer."""
    names, tensors = [*estimate.details], [*estimate, *estimate.details.values()]
    if not estimate.value.is_cpu:
        flat = torch.cat([tensor.detach().double().flatten() for tensor in tensors]).cpu()
        parts = flat.split_with_sizes([tensor.numel() for tensor in tensors])
        tensors = [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
    value, low, high, *details = (tensor.detach().double() for tensor in tensors)
    return replace(estimate, value=value, low=low, high=high, details=dict(zip(names, details, strict=True)))


def by_set(row_words: Sequence[list[str]], values: Tensor) -> Iterator[tuple[list[str], Tensor]]:
    # values: (sum of W, ...), of the words of all sets concatenated
    return zip(row_words, values.split_with_sizes([*map(len, row_words)]), strict=True)


def by_word(words: Sequence[str], values: Tensor) -> dict[str, float]:
    # values: (W,)
    """Return word -> value; the mean if a word has several rows."""
    numbers = values.tolist()
    value_by_word = dict(zip(words, numbers, strict=True))
    if len(value_by_word) == len(words):
        return value_by_word
    rows: dict[str, list[float]] = {}
    for word, number in zip(words, numbers, strict=True):
        rows.setdefault(word, []).append(number)
    return {word: float(np.mean(row_values)) for word, row_values in rows.items()}
