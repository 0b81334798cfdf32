"""`evaluate_run`: computes measures of trec_eval from a run and judgements."""

import math
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.resampling.intervals import interval, with_values
from ...core.resampling.means import resampled_means
from ...core.resampling.resampling import Resampled
from ...core.resampling.weights import ItemNames, check_draws
from ...core.results.estimates import Estimate, check_confidence
from ...core.results.plots import plot_values
from ...core.results.score_table import ScoreTable
from ...core.results.table import Table, table_of
from .measures import GEOMETRIC, MIN_GEOMETRIC, SUMMED, means_of, measures
from .pairs import Qrels, QueryDocuments, Run
from .ranking import ranked_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PairsType = TypeVar("PairsType", Run, Qrels)


class RunScores(NamedTuple):
    """Scores of ranked lists, the result of `evaluate_run`.

    Two runs of the same queries are compared by `tensormetrics.compare`, several by `compare({"bm25": scores, ...})`.

    Args:
        queries: Names of the Q queries.
        values: Scores of each measure, (Q,) float64.
        relevance_level: Smallest gain that counts as relevant.

    Example:
        >>> qrels = {f"q{i}": {"a": 1} for i in range(30)}
        >>> scores = evaluate_run({f"q{i}": {"a": 2.0, "b": 3.0 * (i % 3 == 0)} for i in range(30)}, qrels, ["P_1"])
        >>> print(scores.interval()["P_1"])
        0.667 [0.488, 0.822]
    """

    queries: list[str]
    values: dict[str, Tensor]
    relevance_level: int = 1

    def __repr__(self) -> str:
        means = "".join(f", {name}={value:.4g}" for name, value in self.summary().items())
        return f"RunScores(queries={len(self.queries)}{means})"

    def summary(self) -> dict[str, float]:
        """Return the mean over the queries, as trec_eval prints it for `all`, and the sum of counts."""
        return {name: float(mean) for name, mean in means_of(self.values).items()}

    def interval(
        self, *, confidence: float = 0.95, replicates: int | None = None, seed: int | None = None, groups: Any = None
    ) -> ScoreTable[Estimate]:
        # groups: (Q,) integers or names
        """Return the mean over the queries with an interval, for each measure that is a mean; see `Metric.interval`.

        Args:
            confidence: Mass of the interval, in (0, 1).
            replicates: Number of random draws, by default 1000.
            seed: Seed of the draws, by default 0; they depend only on it and the names of the queries.
            groups: A number or name for each query, equal for dependent queries, such as those of one topic.

        Returns:
            An `Estimate` by the name of the measure.

        Raises:
            ValueError: If an option is out of range, or no measure is a mean.
        """
        confidence = check_confidence(confidence)
        estimates = self._estimates(self._resampled("interval", replicates, seed, groups), confidence)
        return ScoreTable.by_name(estimates, self._direction, type(self).__name__)

    def table(self, name: str = "run", **options: Any) -> Table:
        """Return a table of one row: each measure with its interval, and counts.

        Args:
            name: Name of the row.
            **options: Options of `interval`.
        """
        counts = {measure: value for measure, value in self.summary().items() if measure in SUMMED}
        return table_of({name: {**self.interval(**options), **counts}}, self._direction)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> "tuple[Figure, Axes]":
        """Plot the mean of each measure as a point with its interval as a bar.

        Args:
            ax: Axes to draw on; default those of a new figure.
            **options: Options of `interval`.
        """
        return plot_values([self.interval(**options)], "Mean over queries", (0.0, 1.0), True, ax)

    def _estimates(self, resampled: Resampled, confidence: float) -> dict[str, Estimate]:
        return with_values(interval(resampled, confidence), self._means())

    def _means(self) -> dict[str, Tensor]:
        return {name: mean for name, mean in means_of(self.values).items() if name not in SUMMED}

    def _direction(self, name: str) -> bool | None:
        return None if name in SUMMED else True

    def scoring_options(self) -> dict[str, Any]:
        """Return the options that must be equal for two runs to be comparable."""
        return {"relevance_level": self.relevance_level, "metrics": ", ".join(self.values)}

    def _resampled(
        self, purpose: str, replicates: int | None = None, seed: int | None = None, groups: Any = None
    ) -> Resampled:
        names = ItemNames.of(self.queries, groups, next(iter(self.values.values())).device)
        return resampled_queries(self.values, names, f"the {purpose}", replicates, seed)


def resampled_queries(
    values: Mapping[str, Tensor],  # (Q,) each
    names: ItemNames,
    purpose: str,
    replicates: int | None,
    seed: int | None,
    target: Tensor | None = None,
) -> Resampled:
    """Draw the means over queries of all measures but counts."""
    lowest = math.log(MIN_GEOMETRIC)
    columns = {name: 1 - x / lowest if name == GEOMETRIC else x for name, x in values.items() if name not in SUMMED}
    if not columns:
        raise ValueError(f"metrics: got {', '.join(values)}, wanted at least one mean for {purpose}")

    def read(means: Tensor) -> dict[str, Tensor]:
        named = dict(zip(columns, means.unbind(-1), strict=True))
        return {name: (lowest * (1 - x)).exp() if name == GEOMETRIC else x for name, x in named.items()}

    scores = torch.stack([*columns.values()], 1)
    return resampled_means(scores, names, *check_draws(replicates, seed), bounds=(0.0, 1.0), target=target).take(
        read=read
    )


@checks.names_arguments
def evaluate_run(
    run: Run | str | PathLike | Mapping[str, Mapping[str, float]] | Mapping[str, Sequence[str]] | Any,
    qrels: Qrels | str | PathLike | Mapping[str, Mapping[str, int]] | Any,
    metrics: Sequence[str] = ("map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100"),
    *,
    relevance_level: int = 1,
    complete: bool = False,
    judged_only: bool = False,
) -> RunScores:
    """Compute measures of trec_eval for each query, by its names and rules and equal to the last digits.

    Documents are ranked by score, rounded to float32; at equal scores the greater name comes first.

    Args:
        run: Scores of documents by query: a file, a dictionary, a DataFrame or a `Run`. The order of the arguments is
            that of trec_eval's tables; ``ranx.evaluate`` and ir_measures take ``qrels`` first.
        qrels: Gains of documents by query: a file, a dictionary, a DataFrame or `Qrels`.
        metrics: Names of trec_eval (``"ndcg_cut_10"``, ``"P.5,10"``), ranx (``"ndcg@10"``, ``"mrr"``) or ir_measures
            (``"nDCG@10"``, ``"RR"``); measures with the prefix ``num_`` are counts, ``"gm_map"`` is a geometric mean,
            whose values are logarithms, and ERR counts gains up to 4, as gdeval. The error for an unknown name lists
            all.
        relevance_level: Minimum gain of a relevant document. nDCG uses the gains themselves, negative ones as 0.
        complete: Score queries with judgements but without a run as 0; by default they are left out, like queries
            without judgements.
        judged_only: Remove documents without a judgement or with a negative gain from the lists, like -J of
            trec_eval.

    Returns:
        The values of each query, in [0, 1] except counts, higher is better. Time O(n log n), memory O(n).

    Raises:
        TypeError: If ``run`` is a `Qrels` or ``qrels`` a `Run`, or names in a dictionary are not ``str``.
        ValueError: If a name of metrics is unknown, a document occurs twice, a file is malformed, or run and
            judgements have no query in common (without ``complete``).

    Warns:
        UserWarning: If the values look as if run and judgements were swapped.

    Example:
        >>> scores = evaluate_run({"q": {"a": 3.0, "b": 2.0}}, {"q": {"b": 1}}, ["recip_rank", "P_1"])
        >>> scores.summary()
        {'recip_rank': 0.5, 'P_1': 0.0}
    """
    checks.check_number("relevance_level", relevance_level, "a number", math.isfinite)
    selected = measures(metrics)
    if isinstance(run, Qrels) or isinstance(qrels, Run):
        got = f"a {type(run).__name__} as the run and a {type(qrels).__name__} as judgements"
        raise TypeError(f"run, qrels: got {got}; write evaluate_run(run=..., qrels=...)")
    types = _types_of(run), _types_of(qrels)
    run, qrels = _as(Run, run), _as(Qrels, qrels)
    if types == ({int}, {float}) or _look_swapped(run, qrels):
        warnings.warn(
            "run, qrels: the run looks like judgements (integers, with ties) and the judgements like a run; if they "
            "are swapped, write evaluate_run(run=..., qrels=...)",
            stacklevel=2,
        )
    queries, rows = ranked_rows(run, qrels, complete, judged_only)
    if not queries:
        examples = ", ".join(repr(query) for pairs in (run, qrels) for query in pairs.queries[:2])
        raise ValueError(f"run, qrels: no query is in both; their names begin with {examples or 'none'}")
    return RunScores(queries, rows.values(selected, relevance_level), relevance_level)


def _as(kind: type[PairsType], value: Any) -> PairsType:
    if isinstance(value, kind):
        return value
    return kind.read(value) if isinstance(value, str | PathLike) else kind(value)


def _types_of(argument: Any) -> set[type]:
    """Return the types of the numbers in a dictionary of dictionaries."""
    if not isinstance(argument, Mapping):
        return set()
    return {
        type(value) for documents in argument.values() if isinstance(documents, Mapping) for value in documents.values()
    }


def _look_swapped(run: Run, qrels: Qrels) -> bool:
    """Return whether scores are integers with ties, while gains, at least five of some query, have none."""
    if len(run) == 0 or (run.value != np.rint(run.value)).any() or np.bincount(qrels.query, minlength=1).max() < 5:
        return False
    return _has_ties(run) and not _has_ties(qrels)


def _has_ties(pairs: QueryDocuments) -> bool:
    order = np.lexsort((pairs.value, pairs.query))
    query, value = pairs.query[order], pairs.value[order]
    return bool(((query[1:] == query[:-1]) & (value[1:] == value[:-1])).any())
