"""Content of figures."""

import numpy as np
import pytest
from raising import raises

from tensormetrics.association import plot_queries_results, plot_ranking, plot_ranking_correlations

pd = pytest.importorskip("pandas")
figures = pytest.importorskip("matplotlib.figure")
MODELS = ["a model with a rather long name", "b", "c"]
QUERIES = [f"Targets {i} and other targets wrt Pleasant words and unpleasant words {i}" for i in range(10)]


def results(queries):
    return pd.DataFrame(np.arange(3.0 * queries).reshape(3, -1) - 4, MODELS, QUERIES[:queries])


@pytest.mark.parametrize("queries", [1, 10])
@pytest.mark.parametrize("by", ["query", "model"])
def test_plot_queries_results_draws_bars_and_labels(by, queries):
    table = results(queries)
    figure = plot_queries_results(table, by)
    (ax,) = figure.axes
    bars = table if by == "query" else table.T
    assert [[bar.get_height() for bar in group] for group in ax.containers] == bars.to_numpy().tolist()
    labels = [label.get_text().replace("\n", " ") for label in ax.get_xticklabels()]
    assert labels == list(bars.columns) and ax.get_ylabel() == "Bias measure"
    labels_in_lines = ax.get_xticklabels() if by == "query" else ax.get_legend().get_texts()
    assert "wrt\n" in labels_in_lines[0].get_text()


def test_plot_queries_results_marks_missing_scores():
    table = results(2)
    table.iloc[1, 0] = np.nan
    (ax,) = plot_queries_results(table).axes
    (note,) = ax.texts
    assert note.get_text() == "no score" and note.xy == (0, 0)
    assert ax.get_xlim() == plot_queries_results(results(2)).axes[0].get_xlim()


def test_plot_ranking_stacks_ranks_or_draws_panels():
    table = pd.DataFrame({"WEAT: x average score": [3.0, 1, 2], "RND: x average score": [3.0, 2, np.nan]}, MODELS)
    figure = plot_ranking(table)
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["c", "b", "a model with a rather long\nname"]
    assert [bar.get_x() + bar.get_width() for bar in ax.containers[1]] == [2, 3, 6] and ax.yaxis_inverted()
    assert [text.get_text() for text in ax.texts] == ["1 missing"]
    facets = plot_ranking(table, use_metric_as_facet=True)
    assert [len(ax.containers) for ax in facets.axes] == [1, 1]
    assert [bar.get_width() for bar in facets.axes[1].containers[0]] == [0, 2, 3]
    assert [[text.get_text() for text in ax.texts] for ax in facets.axes] == [[], ["no rank"]]
    six_panels = plot_ranking(pd.DataFrame(1.0, MODELS, [f"metric {i}" for i in range(6)]), use_metric_as_facet=True)
    assert [ax.get_subplotspec().colspan.start for ax in six_panels.axes] == [0, 1, 2, 3, 0, 1]
    with raises(ValueError, "ax: got an Axes for one panel per metric, wanted None"):
        plot_ranking(table, use_metric_as_facet=True, ax=ax)


def test_plot_ranking_correlations_has_fixed_color_limits():
    names = ["WEAT: x average score", "RND: x average score"]
    figure = plot_ranking_correlations(pd.DataFrame([[1, -0.5], [-0.5, 1]], names, names), title="how alike")
    ax = figure.axes[0]
    assert ax.images[0].get_clim() == (-1, 1) and ax.get_title() == "how alike"
    assert [text.get_text() for text in ax.texts] == ["1.00", "−0.50", "−0.50", "1.00"]


def test_plots_draw_into_passed_axes():
    figure = figures.Figure()
    ax = figure.subplots()
    assert plot_queries_results(results(2), ax=ax) is figure and len(ax.containers) == 3
    other = figures.Figure().subplots()
    assert plot_ranking(results(2), ax=other) is other.figure and other.containers


def test_plots_invalid_arguments_raise():
    with raises(ValueError, "by: got 'metric', wanted one of 'query', 'model'"):
        plot_queries_results(results(1), by="metric")
    with raises(TypeError, "ranking: got a list, wanted a DataFrame"):
        plot_ranking([])


def test_plot_queries_results_stars_significant_corrected_p_values():
    table = pd.DataFrame([[0.01, 0.2], [0.6, 0.049]], ["a", "b"], ["q", "r"])
    assert not plot_queries_results(table).axes[0].texts
    table.attrs["correction"] = "max-t"
    for by in ("query", "model"):
        (ax,) = plot_queries_results(table, by).axes
        assert sorted(text.xy[1] for text in ax.texts if text.get_text() == "*") == [0.01, 0.049]
        assert ax.get_ylabel() == "p-value (max-t), * below 0.05"


@pytest.mark.parametrize("kind", ["bars", "lines"])
@pytest.mark.parametrize("by", ["query", "model"])
def test_plot_queries_results_draws_intervals_as_error_bars(by, kind):
    table = results(2)
    fields = pd.concat({"value": table, "low": table - 1, "high": table + 2}, axis=1).swaplevel(axis=1)
    fields = fields[list(table.columns)].rename_axis(columns=["query_name", "field"])
    (ax,) = plot_queries_results(fields, by, kind=kind).axes
    bars = table if by == "query" else table.T
    labels = [label.get_text().replace("\n", " ") for label in ax.get_xticklabels()]
    assert labels == list(bars.columns)
    segments = [segment for lines in ax.collections for segment in lines.get_segments()]
    ends = [[value - 1, value + 2] for value in bars.to_numpy().flatten().tolist()]
    assert [segment[:, 1].tolist() for segment in segments] == ends
