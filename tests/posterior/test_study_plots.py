import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.posterior import Study, UnknownNameError
from tensormetrics.posterior.plots.distributions import DIFFERENCE, DISTRIBUTION, FOREST
from tensormetrics.posterior.plots.drawing import Look, Outline, interval_of, one_scale, outline, x_range
from tensormetrics.uncertainty import UncertaintyWarning

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402

PRIORS = {"prevalence_prior": 1, "confusion_prior": 1}
MLP = {"experiment_group": "mlp"}
PAIR = {"experiment_a": "mlp/a", "experiment_b": "mlp/b"}
COARSE = {"grid_samples": 20}
PLOTS = {
    "plot_metric_summaries": (DISTRIBUTION, COARSE),
    "plot_experiment_aggregation": (DISTRIBUTION, MLP | COARSE),
    "plot_pairwise_comparison": (DIFFERENCE, PAIR | COARSE),
    "plot_forest_plot": (FOREST, {}),
}


def make_study(folds="ab"):
    study = Study(0, metrics={"acc": {"aggregation": "fe"}, "f1": {"aggregation": "fe"}})
    for k, fold in enumerate(folds):
        study.add_experiment(f"mlp/{fold}", [[50 + 9 * k, 5, 3], [4, 60, 6], [3, 8, 70]], **PRIORS)
    return study


@pytest.fixture(scope="module")
def study():
    return make_study()


def num_artists(figure):
    return sum(len(ax.lines) + len(ax.collections) + len(ax.texts) for ax in figure.axes)


@pytest.mark.parametrize("plot", PLOTS)
def test_plots_parts_can_be_removed_and_styled(plot, study):
    parts, arguments = PLOTS[plot]
    call = getattr(study, plot)
    full = call("acc", **arguments)
    for part in parts:
        partial = call("acc", **arguments, hide=[part])
        texts = [[t.get_text() for t in fig.findobj(matplotlib.text.Text) if t.get_text()] for fig in (full, partial)]
        assert num_artists(partial) < num_artists(full) or len(texts[1]) < len(texts[0]), part
    call("acc", **arguments, style={part: {"alpha": 0.5} for part in parts if part != "legend"})
    call("f1", 1, **arguments, method="hist", bins=13, normalize=True).draw_without_rendering()
    assert call("acc", **arguments, style={"legend": {"title": "what"}}).legends[0].get_title().get_text() == "what"
    everything = call("acc", **arguments, hide=list(parts))
    assert num_artists(everything) == 0 and not everything.legends
    for name in "style", "hide":
        with raises(ValueError, f"{name}: there is no part 'shadow', this plot has {', '.join(parts)}"):
            call("acc", **arguments, **{name: {"shadow": {}}})


@pytest.mark.parametrize("plot", ["plot_metric_summaries", "plot_experiment_aggregation", "plot_forest_plot"])
def test_plots_of_one_experiment_accept_background(plot):
    figure = getattr(make_study("a"), plot)("acc", **PLOTS[plot][1], background="xkcd:light grey")
    assert len(figure.axes) >= 1
    figure.draw_without_rendering()


def test_plots_use_existing_axes(study):
    figure = Figure()
    axes = figure.subplots(2, 1)
    assert study.plot_metric_summaries("acc", ax=axes, **COARSE) is figure and len(axes[0].lines) > 3
    with pytest.raises(ValueError, match="^ax: got 2 axes, this plot has 3$"):
        study.plot_experiment_aggregation("acc", **MLP, **COARSE, ax=axes)
    two = make_study()
    two.add_experiment("sure/x", [[900, 5, 3], [4, 960, 6], [3, 8, 970]], **PRIORS)
    axes = Figure().subplots(2, 1)
    two.plot_forest_plot("acc", ax=axes)
    assert axes[0].get_xlim() == axes[1].get_xlim()
    single = Figure().subplots()
    assert study.plot_pairwise_comparison("acc", **PAIR, **COARSE, ax=single) is single.figure


def test_plots_contain_values_of_comparison(study):
    figure = study.plot_pairwise_comparison("acc", **PAIR, min_sig_diff=0.02, precision=3)
    result = study.get_pairwise_comparison("acc", **PAIR, min_sig_diff=0.02)
    texts = [text.get_text() for text in figure.axes[0].texts]
    fractions = zip(
        (result.p_sig_neg, result.p_rope, result.p_sig_pos), ("smaller", "equivalent", "greater"), strict=True
    )
    assert texts == [f"{float(fraction):.1%} {label}" for fraction, label in fractions]
    assert figure.axes[0].get_xlabel() == "Accuracy: mlp/a − mlp/b"
    low, high = (float(end) for end in result.interval)
    (ends,) = (lines for lines in figure.axes[0].collections if lines.get_label() == "95% HDI")
    assert [segment[0, 0] for segment in ends.get_segments()] == [low, high]
    assert study.plot_pairwise_comparison("f1", 1, **PAIR).axes[0].get_xlabel() == "F1-score, class 1: mlp/a − mlp/b"
    figure = study.plot_experiment_aggregation("acc", **MLP)
    assert figure.axes[0].get_title() == "mlp: Fixed-effects Gaussian conflation"
    assert [ax.get_ylabel() for ax in figure.axes] == ["a", "b", "Aggregated"]
    assert figure.axes[-1].get_xlabel() == "Accuracy"
    center = np.mean(figure.axes[0].get_xlim())
    assert center == pytest.approx(np.median(study.get_metric_samples("acc", "mlp/aggregated").numpy()), abs=1e-6)


def test_forest_plot_columns_contain_interval(study):
    figure = study.plot_forest_plot("acc", precision=3)
    (header,) = (text.get_text() for text in figure.axes[0].texts)
    rows = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    median, low, high = interval_of(study.get_metric_samples("acc", "mlp/a").values[:, 0], 0.95)
    assert header == "Median         95% HDI  Width"
    assert rows[0] == f" {median:.3f}  [{low:.3f}, {high:.3f}]  {high - low:.3f}"
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[:2] == ["a", "b"] and names[2].startswith("Aggregate")


def test_plots_perfect_classifier_stays_within_bounds():
    study = Study(0, metrics={"acc": {"aggregation": "fe"}})
    for name in "p/a", "p/b":
        study.add_experiment(name, [[9, 0], [0, 9]], 0, 0)
    study.plot_metric_summaries("acc", **COARSE).draw_without_rendering()
    forest = study.plot_forest_plot("acc")
    forest.draw_without_rendering()
    assert forest.axes[0].get_xlim()[1] == 1  # no accuracy is greater
    pair = {"experiment_a": "p/a", "experiment_b": "p/b"}
    study.plot_pairwise_comparison("acc", **pair, **COARSE).draw_without_rendering()


def test_plots_undefined_samples_are_labeled():
    study = Study(0, metrics={"ppv": {}})
    with pytest.warns(UserWarning, match="never predicted"):
        study.add_experiment("a", [[8, 0], [5, 0]], 0, 0)
    figure = study.plot_metric_summaries("ppv", 1)
    assert figure.axes[0].texts[0].get_text() == "undefined"
    with pytest.warns(UncertaintyWarning, match="100% of an experiment's are nan"):
        forest = study.plot_forest_plot("ppv", 1)
    assert [text.get_text() for text in forest.axes[0].texts[:2]] == ["undefined", "undefined"]


def test_outline_of_uniform_samples_is_flat():
    samples = torch.linspace(0, 1, 1001)
    histogram = outline(samples, (0, 1), Look(method="hist", bins=4))
    np.testing.assert_allclose(histogram.x, np.repeat(np.linspace(0, 1, 5), 2))
    np.testing.assert_allclose(histogram.y, [0, *[1] * 8, 0], rtol=6e-3)
    density = outline(samples, (0, 1), Look(normalize=True))
    assert density.y.max() == 1 and density.height(0.0) > 0.9  # no mass leaks beyond the bounds
    section = density.between(0.2, 0.4)
    assert section.x[0] == 0.2 and section.x[-1] == 0.4 and len(section.x) > 10


def test_x_range_covers_outlines_and_intervals():
    def flat(low, high):
        return Outline(np.array([low, high]), np.array([1.0, 1.0]))

    unbounded = -np.inf, np.inf
    assert x_range([flat(0.1, 0.8)], [(0.5, 0.3, 0.7)], (0, 1)) == (0, 1)  # more than half of the bounds
    low, high = x_range([flat(0.7, 0.99)], [(0.9, 0.85, 0.95)], (0, 1))
    assert 0.68 < low < 0.7 and high == 1  # near the end
    low, high = x_range([flat(-90, 90)], [(0.0, -0.5, 0.5)], unbounded)
    assert -5.5 < low < -5 and 5 < high < 5.5  # tails are cut
    low, high = x_range([flat(-90, 90), flat(-90, 90)], [(0, -0.5, 0.5), (20, 10, 50)], unbounded, [-30, None])
    assert -35 < low < -30 and 50 < high < 55  # intervals and observations are not
    assert x_range([], [], unbounded) == (0, 1)


def test_plots_scale_is_common_unless_heights_differ():
    def peak(height, width=1.0):
        return Outline(np.array([0, width]), np.array([0.0, height]))

    assert one_scale([peak(1), peak(4)]) and not one_scale([peak(1), peak(5)])
    assert one_scale([peak(1, 0.0)] * 2) and not one_scale([peak(1, 0.0), peak(1)])  # spikes have any height
    study = make_study()
    study.add_experiment("sure/x", [[900, 5, 3], [4, 960, 6], [3, 8, 970]], **PRIORS)

    def heights(axes):
        """Return the largest height and the upper limit of each axis."""
        return [(max(np.max(line.get_ydata()) for line in ax.lines), ax.get_ylim()[1]) for ax in axes]

    peaks, limits = np.transpose(heights(study.plot_metric_summaries("acc", grid_samples=100).axes))
    assert (peaks < limits).all() and limits[2] > 4 * limits[0]
    for axes in (None, list(Figure().subplots(2))):
        peaks, limits = np.transpose(heights(make_study().plot_metric_summaries("acc", ax=axes, grid_samples=100).axes))
        assert (peaks < limits).all() and limits[0] == limits[1]


def test_plots_invalid_arguments_raise(study):
    for name, value, wanted in (
        ("method", "violin", "one of 'kde', 'hist', 'histogram'"),
        ("bins", 0, "an integer >= 1"),
        ("bins", "many", "one of 'auto'"),
        ("grid_samples", 1, "an integer >= 2"),
    ):
        with raises(ValueError, f"{name}: got {value!r}, wanted {wanted}"):
            study.plot_metric_summaries("acc", **{name: value})
    for plot in Study(0, metrics={"acc": {}}).plot_metric_summaries, Study(0, metrics={"acc": {}}).plot_forest_plot:
        with pytest.raises(ValueError, match="^there is nothing to plot: got no experiments, wanted at least one$"):
            plot("acc")
    with pytest.raises(UnknownNameError, match="^there is no group 'x' in the study; the closest are 'mlp'$"):
        study.plot_experiment_aggregation("acc", experiment_group="x")
