import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.posterior import Study
from tensormetrics.posterior.extend import UnknownNameError
from tensormetrics.posterior.plots.distributions import PARTS, REGIONS
from tensormetrics.posterior.plots.drawing import Look, Outline, one_scale, outline, x_range
from tensormetrics.uncertainty.functional import hdi

matplotlib = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402

PRIORS = {"prevalence_prior": 1, "confusion_prior": 1}
PAIR = {"experiments": ["mlp/a"], "minus": "mlp/b"}
COARSE = {"grid_samples": 20}
PLOTS = {
    "experiments": (PARTS, COARSE),
    "pooled": (PARTS, {"experiments": ["mlp/a", "mlp/aggregated"], "centre": -1, "title": "pooled"} | COARSE),
    "difference": ({**PARTS, **REGIONS}, PAIR | COARSE | {"rope": 0.02}),
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
    full, _ = study.plot("acc", **arguments)
    for part in parts:
        if part == "area" and plot == "difference":
            continue  # it is divided
        partial, _ = study.plot("acc", **arguments, hide=[part])
        texts = [[t.get_text() for t in fig.findobj(matplotlib.text.Text) if t.get_text()] for fig in (full, partial)]
        assert num_artists(partial) < num_artists(full) or len(texts[1]) < len(texts[0]), part
    study.plot("acc", **arguments, style={part: {"alpha": 0.5} for part in parts if part != "legend"})
    study.plot("f1", 1, **arguments, method="hist", bins=13, normalize=True)[0].draw_without_rendering()
    titled, _ = study.plot("acc", **arguments, style={"legend": {"title": "what"}})
    assert titled.legends[0].get_title().get_text() == "what"
    everything, _ = study.plot("acc", **arguments, hide=list(parts))
    assert num_artists(everything) == 0 and not everything.legends
    for name in "style", "hide":
        with raises(ValueError, f"{name}: there is no part 'shadow', this plot has {', '.join(parts)}"):
            study.plot("acc", **arguments, **{name: {"shadow": {}}})


def test_plots_of_one_experiment_accept_background():
    make_study("a").plot("acc", background="xkcd:light grey")[0].draw_without_rendering()


def test_plots_use_existing_axes(study):
    figure = Figure()
    axes = figure.subplots(2, 1)
    assert study.plot("acc", ax=axes, **COARSE) == (figure, list(axes)) and len(axes[0].lines) > 3
    with pytest.raises(ValueError, match="^ax: got 2 axes, this plot has 3$"):
        study.plot("acc", experiments=["mlp/a", "mlp/b", "mlp/aggregated"], **COARSE, ax=axes)
    single = Figure().subplots()
    assert study.plot("acc", **PAIR, **COARSE, ax=single) == (single.figure, [single])


def test_plots_contain_values_of_comparison(study):
    figure, _ = study.plot("acc", **PAIR, rope=0.02, precision=3)
    draws = (study.column("acc", None, "mlp/a") - study.column("acc", None, "mlp/b")).double()
    texts = [text.get_text() for text in figure.axes[0].texts]
    shares = [(draws < -0.02).double().mean(), (draws.abs() <= 0.02).double().mean(), (draws > 0.02).double().mean()]
    labels = "smaller", "equivalent", "greater"
    assert texts == [f"{float(share):.1%} {label}" for share, label in zip(shares, labels, strict=True)]
    assert figure.axes[0].get_xlabel() == "Accuracy: difference"
    assert figure.axes[0].get_ylabel() == "mlp/a − mlp/b"
    ends = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_label() == "95% HDI"]
    assert ends == [float(end) for end in hdi(draws)]
    observed = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_label() == "observed"]
    points = [float(study.column("acc", None, name, "input")) for name in ("mlp/a", "mlp/b")]
    assert observed == pytest.approx([points[0] - points[1]])
    figure, _ = study.plot("acc", experiments=["mlp/a", "mlp/aggregated"], centre=-1)
    assert [ax.get_ylabel() for ax in figure.axes] == ["mlp/a", "mlp/aggregated"]
    center = np.mean(figure.axes[0].get_xlim())
    assert center == pytest.approx(np.median(study.samples("acc", "mlp/aggregated").numpy()), abs=1e-6)


def test_plots_perfect_classifier_stays_within_bounds():
    study = Study(0, metrics={"acc": {"aggregation": "fe"}})
    for name in "p/a", "p/b":
        study.add_experiment(name, [[9, 0], [0, 9]], 0, 0)
    figure, _ = study.plot("acc", **COARSE)
    figure.draw_without_rendering()
    study.plot("acc", minus="p/a", rope=0.1, **COARSE)[0].draw_without_rendering()


def test_plots_undefined_samples_are_labeled():
    study = Study(0, metrics={"ppv": {}})
    with pytest.warns(UserWarning, match="never predicted"):
        study.add_experiment("a", [[8, 0], [5, 0]], 0, 0)
    assert study.plot("ppv", 1)[1][0].texts[0].get_text() == "undefined"


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

    peaks, limits = np.transpose(heights(study.plot("acc", grid_samples=100)[1]))
    assert (peaks < limits).all() and limits[2] > 4 * limits[0]
    for axes in (None, list(Figure().subplots(2))):
        peaks, limits = np.transpose(heights(make_study().plot("acc", ax=axes, grid_samples=100)[1]))
        assert (peaks < limits).all() and limits[0] == limits[1]


def test_plots_invalid_arguments_raise(study):
    for name, value, wanted in (
        ("method", "violin", "one of 'kde', 'hist', 'histogram'"),
        ("bins", 0, "an integer >= 1"),
        ("bins", "many", "one of 'auto'"),
        ("grid_samples", 1, "an integer >= 2"),
    ):
        with raises(ValueError, f"{name}: got {value!r}, wanted {wanted}"):
            study.plot("acc", **{name: value})
    with pytest.raises(ValueError, match="^there is nothing to plot: got no experiments, wanted at least one$"):
        Study(0, metrics={"acc": {}}).plot("acc")
    with pytest.raises(UnknownNameError, match="^there is no group 'x' in the study; it has 'mlp'$"):
        study.plot("acc", experiments=["x/a"])
