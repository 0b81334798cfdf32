"""Names and arguments of WEFE: a program written for it runs with imports from `tensormetrics.compat.wefe`.

Arguments of WEFE 1.0 and of earlier versions: `word_embedding` is `model`, and `preprocessor_args=p,
secondary_preprocessor_args=s` are `preprocessors=[p, s]`, by position too. Figures are matplotlib's.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from .. import association
from ..association import DoubleHardDebias as DoubleHardDebias
from ..association import HalfSiblingRegression as HalfSiblingRegression
from ..association import HardDebias as HardDebias
from ..association import MulticlassHardDebias as MulticlassHardDebias
from ..association import RepulsionAttractionNeutralization as RepulsionAttractionNeutralization
from ..association import fetch_debias_multiclass as fetch_debias_multiclass
from ..association import fetch_debiaswe as fetch_debiaswe
from ..association import fetch_eds as fetch_eds
from ..association import fetch_gn_glove as fetch_gn_glove
from ..association import load_bingliu as load_bingliu
from ..association import load_weat as load_weat
from ..association import load_weat_w2v as load_weat_w2v
from ..association.debias.base import Debias as BaseDebias  # noqa: F401
from ..association.embeddings.lookup import UNCHANGED, Strategy, log
from ..association.embeddings.model import check_model
from ..association.embeddings.query import Template, check_query, check_word_sets, check_words
from ..association.extend import PreprocessorArgs as PreprocessorArgs
from ..association.functional import preprocess_word as preprocess_word
from ..association.metrics.base import check_template
from ..core.arguments import checks
from ..core.results.estimates import Estimate
from ..core.results.plots import new_axes
from ..core.results.text_tables import import_pandas

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EmbeddingDict = dict[str, np.ndarray]  # word -> (D,)
EmbeddingSets = dict[str, EmbeddingDict]  # name of a set -> its words
ORDER = "lost_vocabulary_threshold", "preprocessors", "strategy", "normalize", "warn_not_found_words"
FORMER = "preprocessor_args", "secondary_preprocessor_args"  # of WEFE before `preprocessors`
OPTIONS = {  # of `run_query` -> our name
    "word_embedding": "model",
    "calculate_p_value": "p_value",
    "p_value_test_type": "alternative",
    "p_value_method": "method",
    "p_value_iterations": "permutations",
    "distance_type": "distance",
}
SIDES = {"right-sided": "greater", "left-sided": "less"}
AGGREGATIONS = {
    "sum": "sum",
    "avg": "average",
    "abs_sum": "sum of abs values",
    "abs_avg": "average of abs values",
}


def renamed(options: dict[str, Any]) -> dict[str, Any]:
    """Rename options to the names of `tensormetrics.association`; raise a TypeError if an option has both names."""
    options = dict(options)
    for name, ours in OPTIONS.items():
        if name in options:
            if ours in options:
                raise TypeError(f"{ours}, {name}: got both, wanted one")
            options[ours] = options.pop(name)
    former = {name: options.pop(name) for name in FORMER if name in options}
    if given := [name for name, value in former.items() if value is not None]:
        if options.get("preprocessors", UNCHANGED) is not UNCHANGED:
            raise TypeError(f"preprocessors, {given[0]}: got both, wanted one; write preprocessors=[first, second]")
        first, second = (former.get(name) for name in FORMER)
        options["preprocessors"] = [first or {}] if second is None else [first or {}, second]
    return options


def by_name(owner: str, names: tuple[str, ...], args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Name arguments by position, in the order of either version of WEFE: `preprocessors` is a list, or two dicts."""
    at = names.index("preprocessors")
    if len(args) > at and not isinstance(args[at], list):
        names = (*names[:at], *FORMER, "warn_not_found_words")
    if len(args) > len(names):
        raise TypeError(f"{owner}: got {len(args)} arguments by position, wanted at most {len(names)}")
    named = dict(zip(names, args, strict=False))
    if twice := sorted(named.keys() & options.keys()):
        raise TypeError(f"{owner}: got {', '.join(twice)} by position and by name, wanted one")
    return named | options


class Query(association.Query):
    """`association.Query` with the arguments of WEFE."""

    def get_subqueries(self, new_template: Template) -> list[association.Query]:  # type: ignore[override]
        return super().get_subqueries(new_template)


class BaseMetric:
    """Base class of metrics written for WEFE, which override `run_query`; options of our metric may be given here."""

    kind: type[association.extend.BaseMetric] = association.extend.BaseMetric
    first_options: Sequence[str] = ()  # that WEFE takes by position between the model and the threshold
    empty: dict[str, Any] = {}  # further entries of the result of a query that lost too many words
    metric_template: Template
    metric_name: str
    metric_short_name: str

    def __init__(self, **options: Any) -> None:
        self.options = options

    def metric(self, options: dict[str, Any]) -> association.extend.BaseMetric:
        """Return our metric with these options of `run_query`."""
        options = self.options | options
        options.pop("p_value_verbose", None)
        if "alternative" in options:
            options["alternative"] = SIDES.get(options["alternative"], options["alternative"])
        return self.kind(**options)

    def run_query(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Score a query as WEFE does; called by a subclass without `kind`, check the arguments and return {}."""
        owner = f"{self.metric_short_name}.run_query"
        options = renamed(by_name(owner, ("query", "model", *self.first_options, *ORDER), args, options))
        if missing := [name for name in ("query", "model") if name not in options]:
            raise TypeError(f"{owner}: got no {missing[0]}")
        query, model, metric = options.pop("query"), options.pop("model"), self.metric(options)
        check_query(query)
        check_model(model)
        check_template(query, self.metric_template, self.metric_short_name)
        if self.kind is association.extend.BaseMetric:
            return {}
        estimate = metric.run_query(query, model)
        result = {"query_name": estimate.name, "result": np.float64(estimate.value)} | self.empty
        if "words" in estimate.details:
            result |= entries_of(estimate)
        if options.get("p_value_verbose"):
            print(f"{owner}, {estimate.name}: p = {result['p_value']}")
        return result


def entries_of(estimate: Estimate) -> dict[str, Any]:
    """Return the details of an estimate as WEFE names and orders them, as numbers and dictionaries."""
    details = {name: value for name, value in estimate.details.items() if name not in ("words", "lost", "reason")}
    details = {name: np.float64(value) if isinstance(value, Tensor) else value for name, value in details.items()}
    if distances := details.get("distance_by_word"):
        details["distance_by_word"] = dict(sorted(distances.items(), key=lambda item: item[1]))
    if means := details.pop("mean_by_word", {}):
        stds = details.pop("std_by_word")
        details["word_values"] = {word: {"mean": means[word], "std": stds[word]} for word in means}
    return details


def served(kind: type[association.extend.BaseMetric], first_options: str = "", **empty: Any) -> type[BaseMetric]:
    """Return a metric of `association` as a class with the arguments and results of WEFE."""
    fields = {name: getattr(kind, name) for name in ("metric_template", "metric_name", "metric_short_name")}
    fields |= {"kind": kind, "first_options": first_options.split(), "empty": {kind.__name__.lower(): np.nan} | empty}
    fields["__doc__"] = f"`association.{kind.__name__}` with the arguments and results of WEFE."
    return type(kind.__name__, (BaseMetric,), fields | {"__module__": __name__})


P_VALUES = "calculate_p_value p_value_test_type p_value_method p_value_iterations p_value_verbose"
WEAT = served(association.WEAT, f"return_effect_size {P_VALUES}", effect_size=np.nan, p_value=np.nan)
RND = served(association.RND, "distance", distance_by_word={})
CLASSIFIER = "estimator estimator_params n_iterations random_state holdout print_model_evaluation"
SENTIMENT: dict[str, Any] = {"negative_sentiment_probabilities": {}, "negative_sentiment_distribution": {}}
RNSB = served(association.RNSB, CLASSIFIER, **SENTIMENT)
RIPA = served(association.RIPA, word_values={})
ECT = served(association.ECT)
MAC = served(association.MAC, targets_eval={})


class WordEmbeddingModel(association.WordEmbeddingModel):
    """`association.WordEmbeddingModel` with the method by which metrics of earlier versions of WEFE read vectors."""

    def get_embeddings_from_query(
        self, query: association.Query, *args: Any, **options: Any
    ) -> tuple[EmbeddingSets, EmbeddingSets] | None:
        """Call the function of this name, also with `preprocessor_args` and `secondary_preprocessor_args`."""
        options = by_name("get_embeddings_from_query", (*ORDER, "verbose"), args, options)
        return get_embeddings_from_query(self, query, **renamed(options))


def run_queries(
    metric: BaseMetric | type[BaseMetric],
    queries: Sequence[association.Query],
    models: Sequence[association.WordEmbeddingModel] | None = None,
    queries_set_name: str = "Unnamed queries set",
    lost_vocabulary_threshold: float = 0.2,
    metric_params: dict[str, Any] = {},  # noqa: B006
    generate_subqueries: bool = False,
    aggregate_results: bool = False,
    aggregation_function: "str | Callable[[pd.DataFrame], pd.Series]" = "abs_avg",
    return_only_aggregation: bool = False,
    warn_not_found_words: bool = False,
    *,
    word_embeddings_models: Sequence[association.WordEmbeddingModel] | None = None,
) -> "pd.DataFrame":
    """Score all queries in all models, as `association.run_queries`; a metric that overrides `run_query` one by one.

    `aggregate_results` appends a column, with `queries_set_name` in its name, or returns it only.
    """
    if models is not None and word_embeddings_models is not None:
        raise TypeError("models, word_embeddings_models: got both, wanted one")
    pd, metric = import_pandas(), metric() if isinstance(metric, type) else metric
    models = word_embeddings_models if models is None else models
    options = {"lost_vocabulary_threshold": lost_vocabulary_threshold, "warn_not_found_words": warn_not_found_words}
    options |= metric_params
    if type(metric).run_query is BaseMetric.run_query:
        ours = metric.metric(renamed(options))
        table = association.run_queries(ours, queries, models, generate_subqueries=generate_subqueries)  # type: ignore[arg-type]
        names, cells = [*table.columns], table.cells
    else:
        if generate_subqueries:
            queries = generate_subqueries_from_queries_list(type(metric), queries)
        names = [query.query_name for query in queries]
        cells = [[metric.run_query(query, model, **options)["result"] for query in queries] for model in models or []]
    index = pd.Index([model.name for model in models or []], name="model_name")
    frame = pd.DataFrame(cells, index, pd.Index(names, name="query_name"), dtype=float)
    if not (aggregate_results or return_only_aggregation):
        return frame
    if callable(aggregation_function):
        label, column = "custom aggregation", aggregation_function(frame)
    else:
        checks.check_choice("aggregation_function", aggregation_function, tuple(AGGREGATIONS))
        label, values = AGGREGATIONS[aggregation_function], frame.abs() if "abs" in aggregation_function else frame
        column = values.mean(axis=1) if "avg" in aggregation_function else values.sum(axis=1, min_count=1)
    column = column.rename(f"{metric.metric_short_name}: {queries_set_name} {label} score").to_frame()
    return column if return_only_aggregation else frame.join(column)


def create_ranking(
    results_dataframes: "Sequence[pd.DataFrame]", method: str = "first", ascending: bool = True
) -> "pd.DataFrame":
    """Rank the models by the last column of each table. Columns of equal names get their position: "name (1)"."""
    columns = [table.iloc[:, -1] for table in results_dataframes]
    count = Counter(column.name for column in columns)
    names = [f"{c.name} ({i})" if count[c.name] > 1 else c.name for i, c in enumerate(columns, 1)]
    return import_pandas().concat(columns, axis=1, keys=names).rank(method=method, ascending=ascending)


def calculate_ranking_correlations(
    rankings: "pd.DataFrame", method: str | Callable[[np.ndarray, np.ndarray], float] = "spearman"
) -> "pd.DataFrame":
    """Compute the correlations of all pairs of columns, as `pandas.DataFrame.corr` does."""
    return rankings.corr(method)


def plot_queries_results(
    results: "pd.DataFrame", by: str = "query", ax: "Axes | None" = None, title: str = ""
) -> "Figure":
    """Plot bars of scores: a group per query and a color per model, or the reverse with `by="model"`."""
    checks.check_choice("by", by, ("query", "model"))
    figure, (ax,) = new_axes(ax, (2 + 0.5 * results.size, 5))
    (results.T if by == "query" else results).plot.bar(ax=ax, title=title, ylabel="Bias measure")
    return figure


def plot_ranking(
    ranking: "pd.DataFrame", use_metric_as_facet: bool = False, ax: "Axes | None" = None, title: str = ""
) -> "Figure":
    """Plot bars of ranks: a bar per model, the smallest total last, stacked by metric or in a panel per metric."""
    order = ranking.sum(axis=1).sort_values(kind="stable", ascending=False).index
    figure, panels = new_axes(ax, (8, 1 + 0.4 * len(ranking)), 1, ranking.shape[1] if use_metric_as_facet else 1)
    drawn = panels if use_metric_as_facet else panels[0]
    ranking.loc[order].plot.barh(ax=drawn, stacked=True, subplots=use_metric_as_facet, title=title)
    return figure


def plot_ranking_correlations(
    correlation_matrix: "pd.DataFrame", title: str = "", ax: "Axes | None" = None
) -> "Figure":
    """Plot a heat map of correlations between -1 and 1."""
    names = [*correlation_matrix.columns]
    figure, (ax,) = new_axes(ax, (3 + len(names), 2 + 0.8 * len(names)))
    figure.colorbar(ax.imshow(correlation_matrix, cmap="RdBu_r", vmin=-1, vmax=1), ax=ax)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right")
    ax.set_yticks(range(len(names)), names)
    ax.set_title(title)
    return figure


def generate_subqueries_from_queries_list(
    metric: type[BaseMetric], queries: Sequence[association.Query]
) -> list[association.Query]:
    """Return the sub-queries of all queries by the metric's template, the first of each name."""
    subqueries: dict[str, association.Query] = {}
    for query in queries:
        for subquery in query.get_subqueries(metric.metric_template):
            subqueries.setdefault(subquery.query_name, subquery)
    return [*subqueries.values()]


def get_embeddings_from_set(
    model: association.WordEmbeddingModel,
    word_set: Sequence[str],
    preprocessors: list[PreprocessorArgs] = UNCHANGED,
    strategy: Strategy = "first",
    normalize: bool = False,
    verbose: bool = False,
) -> tuple[list[str], EmbeddingDict]:
    """Return the forms that were not found, in order, and `{key: vector}` of the found keys; see `index_query`.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> get_embeddings_from_set(model, ["he", "hers"])
    (['hers'], {'he': array([2., 1.], dtype=float32)})
    """
    check_model(model)
    matches = model.search(preprocessors, strategy).words(check_words("word_set", word_set))
    if verbose:
        print(f"found {len(matches.keys)} keys for {matches.total} words: {matches.keys}, lost: {matches.lost}")
    return list(matches.not_found), model.arrays(matches.keys, normalize)


def get_embeddings_from_query(
    model: association.WordEmbeddingModel,
    query: association.Query,
    lost_vocabulary_threshold: float = 0.2,
    preprocessors: list[PreprocessorArgs] = UNCHANGED,
    strategy: Strategy = "first",
    normalize: bool = False,
    warn_not_found_words: bool = False,
    verbose: bool = False,
) -> tuple[EmbeddingSets, EmbeddingSets] | None:
    """Return targets and attributes as `{set name: {word: vector}}` on the host; None for an unusable query.

    Options are those of `WordEmbeddingModel.index_query`; `normalize` returns unit vectors, `verbose` prints the found
    words.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> targets, attributes = get_embeddings_from_query(model, Query([["he"], ["she"]], [["work", "home"]]))
    >>> list(targets), list(attributes["Attribute set 0"])
    (['Target set 0', 'Target set 1'], ['work', 'home'])
    """
    check_model(model)
    lookup: dict[str, Any] = {"lost_vocabulary_threshold": lost_vocabulary_threshold, "preprocessors": preprocessors}
    lookup |= {"strategy": strategy, "warn_not_found_words": warn_not_found_words}
    index = model.index_query(query, **lookup)
    names = query.target_sets_names, query.attribute_sets_names
    if verbose:
        for name, keys, missing in zip(sum(names, []), sum(index.words, []), sum(index.lost, []), strict=True):
            print(f"{name}: found {keys}, lost {missing}")
    if index.reason:
        return None
    targets, attributes = (
        {name: model.arrays(keys, normalize) for name, keys in zip(*named_sets, strict=True)}
        for named_sets in zip(names, index.words, strict=True)
    )
    return targets, attributes


def get_embeddings_from_tuples(
    model: association.WordEmbeddingModel,
    sets: Sequence[Sequence[str]],
    sets_name: str | None = None,
    preprocessors: list[PreprocessorArgs] = UNCHANGED,
    strategy: Strategy = "first",
    normalize: bool = False,
    discard_incomplete_sets: bool = True,
    warn_lost_sets: bool = True,
    verbose: bool = False,
) -> list[EmbeddingDict]:
    """Return `{key: vector}` for each small set of related words, such as definitional pairs.

    Sets with a lost word are left out unless `discard_incomplete_sets=False`. ValueError if no set remains. Messages
    call the sets `sets_name`, by default "sets"; `warn_lost_sets` logs incomplete sets, `verbose` prints found words.

    >>> vectors = torch.tensor([[2.0, 1], [3, 1], [1, 2], [1, 3], [1, 0], [0, 1]])
    >>> model = WordEmbeddingModel.from_tensor(vectors, ["he", "him", "she", "her", "work", "home"])
    >>> get_embeddings_from_tuples(model, [["he", "she"], ["him", "hers"]], warn_lost_sets=False)
    [{'he': array([2., 1.], dtype=float32), 'she': array([1., 2.], dtype=float32)}]
    """
    check_model(model)
    search, sets = model.search(preprocessors, strategy), check_word_sets("sets", sets)
    name, selected = "sets" if sets_name is None else sets_name, []
    for words in sets:
        matches = search.words(words)
        complete = not matches.lost
        if not complete and warn_lost_sets:
            log.warning("%s: %s of %s are not in the vocabulary of %r", name, matches.lost, words, model.name)
        if verbose:
            print(f"{words}: found {matches.keys}, lost {matches.lost}")
        if matches.keys and (complete or not discard_incomplete_sets):
            selected.append(model.arrays(matches.keys, normalize))
    if verbose:
        print(f"{name}: {len(selected)} of {len(sets)} sets found")
    if not selected:
        raise ValueError(f"{name}: got {len(sets)} sets, none of which is complete in the vocabulary of {model.name!r}")
    return selected
