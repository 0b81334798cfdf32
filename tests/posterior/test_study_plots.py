import numpy as np
import pytest
import torch

from tensormetrics.posterior import Study, UnknownNameError
from tensormetrics.posterior.plots.distributions import DIFFERENCE, DISTRIBUTION, FOREST
from tensormetrics.posterior.plots.drawing import Look, Outline, interval_of, one_scale, outline, x_range
from tensormetrics.uncertainty import UncertaintyWarning

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402

PRIORS = {"prevalence_prior": 1, "confusion_prior": 1}
MLP = {"experiment_group": "mlp"}
PAIR = {"experiment_a": "mlp/a", "experiment_b": "mlp/b"}
PLOTS = {
    "plot_metric_summaries": (DISTRIBUTION, {}),
    "plot_experiment_aggregation": (DISTRIBUTION, MLP),
    "plot_pairwise_comparison": (DIFFERENCE, PAIR),
    "plot_forest_plot": (FOREST, {}),
}


def make(folds="ab"):
    study = Study(0, metrics={"acc": {"aggregation": "fe"}, "f1": {"aggregation": "fe"}})
    for k, fold in enumerate(folds):
        study.add_experiment(f"mlp/{fold}", [[50 + 9 * k, 5, 3], [4, 60, 6], [3, 8, 70]], **PRIORS)
    return study


@pytest.fixture(scope="module")
def study():
    return make()


def artists(figure):
    return sum(len(ax.lines) + len(ax.collections) + len(ax.texts) for ax in figure.axes)


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("options", [{}, {"method": "hist"}, {"method": "hist", "bins": 13, "normalize": True}])
def test_draws(plot, options, study, tmp_path):
    figure = getattr(study, plot)("f1", 1, **PLOTS[plot][1], **options)
    assert type(figure) is Figure
    figure.savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


@pytest.mark.parametrize("plot", PLOTS)
def test_every_part_can_be_hidden_and_styled(plot, study):
    parts, arguments = PLOTS[plot]
    call = getattr(study, plot)
    full = call("acc", **arguments)
    for part in parts:
        hidden = call("acc", **arguments, hide=[part])
        words = [[t.get_text() for t in fig.findobj(matplotlib.text.Text) if t.get_text()] for fig in (full, hidden)]
        assert artists(hidden) < artists(full) or len(words[1]) < len(words[0]), part
    call("acc", **arguments, style={part: {"alpha": 0.5} for part in parts if part != "legend"})
    assert call("acc", **arguments, style={"legend": {"title": "what"}}).legends[0].get_title().get_text() == "what"
    everything = call("acc", **arguments, hide=list(parts))
    assert artists(everything) == 0 and not everything.legends
    for name in "style", "hide":
        with pytest.raises(ValueError) as caught:
            call("acc", **arguments, **{name: {"shadow": {}}})
        assert str(caught.value) == f"{name}: there is no part 'shadow', this plot has {', '.join(parts)}"


@pytest.mark.parametrize("plot", ["plot_metric_summaries", "plot_experiment_aggregation", "plot_forest_plot"])
def test_one_experiment_and_a_background(plot):
    figure = getattr(make("a"), plot)("acc", **PLOTS[plot][1], background="xkcd:light grey")
    assert len(figure.axes) >= 1
    figure.draw_without_rendering()


def test_axes_at_hand(study):
    figure = Figure()
    axes = figure.subplots(2, 1)
    assert study.plot_metric_summaries("acc", ax=axes) is figure and len(axes[0].lines) > 3
    with pytest.raises(ValueError, match="^ax: got 2 axes, this plot has 3$"):
        study.plot_experiment_aggregation("acc", **MLP, ax=axes)
    two = make()
    two.add_experiment("sure/x", [[900, 5, 3], [4, 960, 6], [3, 8, 970]], **PRIORS)
    axes = Figure().subplots(2, 1)
    two.plot_forest_plot("acc", ax=axes)
    assert axes[0].get_xlim() == axes[1].get_xlim()
    single = Figure().subplots()
    assert study.plot_pairwise_comparison("acc", **PAIR, ax=single) is single.figure


def test_numbers_in_the_picture(study):
    figure = study.plot_pairwise_comparison("acc", **PAIR, min_sig_diff=0.02, precision=3)
    found = study.get_pairwise_comparison("acc", **PAIR, min_sig_diff=0.02)
    texts = [text.get_text() for text in figure.axes[0].texts]
    shares = zip((found.p_sig_neg, found.p_rope, found.p_sig_pos), ("smaller", "equivalent", "greater"), strict=True)
    assert texts == [f"{float(share):.1%} {word}" for share, word in shares]
    assert figure.axes[0].get_xlabel() == "Accuracy: mlp/a − mlp/b"
    low, high = (float(end) for end in found.interval)
    (ends,) = (lines for lines in figure.axes[0].collections if lines.get_label() == "95% HDI")
    assert [segment[0, 0] for segment in ends.get_segments()] == [low, high]
    assert study.plot_pairwise_comparison("f1", 1, **PAIR).axes[0].get_xlabel() == "F1-score, class 1: mlp/a − mlp/b"
    figure = study.plot_experiment_aggregation("acc", **MLP)
    assert figure.axes[0].get_title() == "mlp: Fixed-effects Gaussian conflation"
    assert [ax.get_ylabel() for ax in figure.axes] == ["a", "b", "Aggregated"]
    assert figure.axes[-1].get_xlabel() == "Accuracy"
    middle = np.mean(figure.axes[0].get_xlim())
    assert middle == pytest.approx(np.median(study.get_metric_samples("acc", "mlp/aggregated").numpy()), abs=1e-6)


def test_columns_of_the_forest_plot(study):
    figure = study.plot_forest_plot("acc", precision=3)
    (header,) = (text.get_text() for text in figure.axes[0].texts)
    rows = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    median, low, high = interval_of(study.get_metric_samples("acc", "mlp/a").values[:, 0], 0.95)
    assert header == "Median         95% HDI  Width"
    assert rows[0] == f" {median:.3f}  [{low:.3f}, {high:.3f}]  {high - low:.3f}"
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[:2] == ["a", "b"] and names[2].startswith("Aggregate")


def test_a_perfect_classifier(tmp_path):
    study = Study(0, metrics={"acc": {"aggregation": "fe"}})
    for name in "p/a", "p/b":
        study.add_experiment(name, [[9, 0], [0, 9]], 0, 0)
    study.plot_metric_summaries("acc").savefig(tmp_path / "a.png")
    forest = study.plot_forest_plot("acc")
    forest.savefig(tmp_path / "b.png")
    assert forest.axes[0].get_xlim()[1] == 1  # no accuracy is greater
    study.plot_pairwise_comparison("acc", experiment_a="p/a", experiment_b="p/b").savefig(tmp_path / "c.png")


def test_undefined_samples():
    study = Study(0, metrics={"ppv": {}})
    with pytest.warns(UserWarning, match="never predicted"):
        study.add_experiment("a", [[8, 0], [5, 0]], 0, 0)
    figure = study.plot_metric_summaries("ppv", 1)
    assert figure.axes[0].texts[0].get_text() == "undefined"
    with pytest.warns(UncertaintyWarning, match="100% of an experiment's are nan"):
        forest = study.plot_forest_plot("ppv", 1)
    assert [text.get_text() for text in forest.axes[0].texts[:2]] == ["undefined", "undefined"]


def test_outlines():
    samples = torch.linspace(0, 1, 1001)
    histogram = outline(samples, (0, 1), Look(method="hist", bins=4))
    np.testing.assert_allclose(histogram.x, np.repeat(np.linspace(0, 1, 5), 2))
    np.testing.assert_allclose(histogram.y, [0, *[1] * 8, 0], rtol=6e-3)
    density = outline(samples, (0, 1), Look(normalize=True))
    assert density.y.max() == 1 and density.height(0.0) > 0.9  # no mass leaks beyond the bounds
    inside = density.between(0.2, 0.4)
    assert inside.x[0] == 0.2 and inside.x[-1] == 0.4 and len(inside.x) > 10


def test_range():
    def at(low, high):
        return Outline(np.array([low, high]), np.array([1.0, 1.0]))

    unbounded = -np.inf, np.inf
    assert x_range([at(0.1, 0.8)], [(0.5, 0.3, 0.7)], (0, 1)) == (0, 1)  # more than half of the bounds
    low, high = x_range([at(0.7, 0.99)], [(0.9, 0.85, 0.95)], (0, 1))
    assert 0.68 < low < 0.7 and high == 1  # near the end
    low, high = x_range([at(-90, 90)], [(0.0, -0.5, 0.5)], unbounded)
    assert -5.5 < low < -5 and 5 < high < 5.5  # tails are cut
    low, high = x_range([at(-90, 90), at(-90, 90)], [(0, -0.5, 0.5), (20, 10, 50)], unbounded, [-30, None])
    assert -35 < low < -30 and 50 < high < 55  # intervals and observations are not
    assert x_range([], [], unbounded) == (0, 1)


def test_scales():
    def peak(height, width=1.0):
        return Outline(np.array([0, width]), np.array([0.0, height]))

    assert one_scale([peak(1), peak(4)]) and not one_scale([peak(1), peak(5)])
    assert one_scale([peak(1, 0.0)] * 2) and not one_scale([peak(1, 0.0), peak(1)])  # spikes have any height
    study = make()
    study.add_experiment("sure/x", [[900, 5, 3], [4, 960, 6], [3, 8, 970]], **PRIORS)

    def heights(axes):
        """What is drawn, and what the axes have room for."""
        return [(max(np.max(line.get_ydata()) for line in ax.lines), ax.get_ylim()[1]) for ax in axes]

    drawn, room = np.transpose(heights(study.plot_metric_summaries("acc").axes))
    assert (drawn < room).all() and room[2] > 4 * room[0]
    for axes in (None, list(Figure().subplots(2))):
        drawn, room = np.transpose(heights(make().plot_metric_summaries("acc", ax=axes).axes))
        assert (drawn < room).all() and room[0] == room[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "violin"}, "method: got 'violin', wanted one of 'kde', 'hist', 'histogram'"),
        ({"bins": 0}, "bins: got 0, wanted an integer >= 1"),
        ({"bins": "many"}, "bins: got 'many', wanted one of 'auto'"),
        ({"grid_samples": 1}, "grid_samples: got 1, wanted an integer >= 2"),
    ],
)
def test_errors(options, message, study):
    with pytest.raises(ValueError) as caught:
        study.plot_metric_summaries("acc", **options)
    assert str(caught.value) == message
    for plot in Study(0, metrics={"acc": {}}).plot_metric_summaries, Study(0, metrics={"acc": {}}).plot_forest_plot:
        with pytest.raises(ValueError, match="^there is nothing to plot: got no experiments, wanted at least one$"):
            plot("acc")
    with pytest.raises(UnknownNameError, match="^there is no group 'x' in the study; the closest are 'mlp'$"):
        study.plot_experiment_aggregation("acc", experiment_group="x")
