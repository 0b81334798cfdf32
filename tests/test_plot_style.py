"""What all plots share, held for every one of them: nothing cut off or covered, no global state, greys apart."""

import sys
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import tensormetrics
from tensormetrics import association, posterior
from tensormetrics.__main__ import main
from tensormetrics._cli.commands.association import draw
from tensormetrics._cli.output import draw_scores
from tensormetrics.core.results import plots
from tensormetrics.posterior.plots.distributions import ForestGroup, Shown

matplotlib = pytest.importorskip("matplotlib")
pd = pytest.importorskip("pandas")
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.text import Text  # noqa: E402

PRIORS = {"prevalence_prior": 1, "confusion_prior": 1}
LONG = "transformers/bert-base-multilingual-cased-finetuned-on-something-else"
SHORT = "mlp/a"
MODELS = ["a model with a rather long name of many words", "b", "fasttext-crawl-300d-2M-with-subword-information"]
QUERIES = [f"Male terms and female terms wrt career words and family words {i}" for i in range(10)]


def lightness(color):
    """CIE L*, 0 to 100."""
    linear = np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color])
    return 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16


@pytest.fixture(scope="module")
def study():
    found = posterior.Study(0, metrics={"acc": {"aggregation": "fe"}})
    for k, name in enumerate((SHORT, LONG)):
        found.add_experiment(name, [[50 + 9 * k, 5, 3], [4, 60, 6], [3, 8, 70]], **PRIORS)
    return found


@pytest.fixture(scope="module")
def counted():
    metric = posterior.ConfusionPosterior(3, replicates=500)
    metric.update(torch.tensor([0, 1, 2, 2, 1, 0]), torch.tensor([0, 1, 2, 2, 1, 1]))
    return metric


TABLE = pd.DataFrame(np.arange(30.0).reshape(3, -1) - 4, MODELS, QUERIES)
RANKING = pd.DataFrame({"WEAT: average of the absolute scores": [3, 1, 2], "RND": [3, np.nan, 2]}, MODELS)
ANSWERS = [
    {"query_name": QUERIES[0], "effect_size_x": 1.3, "effect_size_y": -0.9},
    {"query_name": "b", "effect_size_x": 0.1, "effect_size_y": 1.9},
]
# name -> call of (study, metric, options), and how many axes the plot has
PLOTS = {
    "plot_queries_results": (lambda s, m, o: association.plot_queries_results(TABLE, **o), 1),
    "plot_ranking": (lambda s, m, o: association.plot_ranking(RANKING, **o), 1),
    "plot_ranking_correlations": (lambda s, m, o: association.plot_ranking_correlations(TABLE.T.corr(), **o), 1),
    "plot_eat_map": (lambda s, m, o: association.plot_eat_map(ANSWERS, **o), 1),
    "plot_distributions": (
        lambda s, m, o: posterior.plot_distributions([Shown(LONG, s.column("acc", None, LONG))], "acc", (0, 1), **o),
        1,
    ),
    "plot_difference": (
        lambda s, m, o: posterior.plot_difference(
            s.get_pairwise_comparison("acc", experiment_a=SHORT, experiment_b=LONG, min_sig_diff=0.01), **o
        ),
        1,
    ),
    "plot_forest": (
        lambda s, m, o: posterior.plot_forest(
            [ForestGroup(LONG, [Shown(LONG, s.column("acc", None, LONG))], s.column("acc", None, SHORT), 0.5)],
            "acc",
            **o,
        ),
        1,
    ),
    "Study.plot_metric_summaries": (lambda s, m, o: s.plot_metric_summaries("acc", **o), 2),
    "Study.plot_experiment_aggregation": (
        lambda s, m, o: s.plot_experiment_aggregation("acc", experiment_group="transformers", **o),
        2,
    ),
    "Study.plot_pairwise_comparison": (
        lambda s, m, o: s.plot_pairwise_comparison("acc", experiment_a=SHORT, experiment_b=LONG, **o),
        1,
    ),
    "Study.plot_forest_plot": (lambda s, m, o: s.plot_forest_plot("acc", **o), 2),
    "ConfusionPosterior.plot": (lambda s, m, o: m.plot(**o)[0], 1),
    "ConfusionPosterior.plot_posterior": (lambda s, m, o: m.plot_posterior(**o), 1),
}


def demo(epochs):
    for module in "sklearn", "tqdm":
        pytest.importorskip(module)
    from tensormetrics._cli.demo import draw as draw_demo

    interval = {"value": 0.9, "low": 0.8, "high": 0.95}
    row = {"precision_at_1": 0.9, "r_precision": 0.8, "mean_average_precision_at_r": 0.7, "cluster_accuracy": 0.6}
    history = [{"epoch": i + 1, **row, "acc": interval, "f1@macro": interval} for i in range(epochs)]
    generator = torch.Generator().manual_seed(0)
    return draw_demo(history, torch.randn(50, 16, generator=generator), torch.arange(50) % 10)


SCORES = {"mean_average_precision_at_r": 0.7, "a score of a name that is much too long for a line": 1.0, "f1": np.nan}
ROW = {"score": 0.3, "p": 0.01}
PICTURES = {
    **{name: call for name, (call, _) in PLOTS.items()},
    "queries by model": lambda s, m, o: association.plot_queries_results(TABLE, "model"),
    "ranking in panels": lambda s, m, o: association.plot_ranking(RANKING, use_metric_as_facet=True),
    "forest without numbers": lambda s, m, o: s.plot_forest_plot("acc", info=False),
    "scores": lambda s, m, o: draw_scores(SCORES, {"f1": (0.2, 0.3), "mean_average_precision_at_r": (0.6, 1.0)}),
    "scores of classes": lambda s, m, o: draw_scores(SCORES, {}, {"mean_average_precision_at_r": [0.1, np.nan, 1.0]}),
    "demo, one epoch": lambda s, m, o: demo(1),
    "demo, many epochs": lambda s, m, o: demo(60),
    "command line, association": lambda s, m, o: draw(
        {"weat": dict.fromkeys(QUERIES, ROW), "rnd": {QUERIES[0]: {"score": np.nan, "p": np.nan}, "b": {"score": -1.0}}}
    ),
}


@pytest.fixture
def picture(request, study, counted):
    return PICTURES[request.param](study, counted, {})


def test_every_public_plot_is_here():
    domains = [getattr(tensormetrics, name) for name in ("association", "retrieval", "posterior", "structured")]
    found = {name for domain in domains for name in dir(domain) if name.startswith("plot_")}
    for cls in (posterior.Study, posterior.ConfusionPosterior):
        own = (name for base in cls.__mro__ if base.__module__.startswith("tensormetrics") for name in vars(base))
        found |= {f"{cls.__name__}.{name}" for name in own if name.startswith("plot")}
    assert found == set(PLOTS)


@pytest.mark.parametrize("name", PLOTS)
def test_axes_at_hand_and_no_global_state(name, study, counted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    before = dict(matplotlib.rcParams)
    call, number = PLOTS[name]
    figure = Figure(figsize=(9, 9))
    axes = list(np.ravel(figure.subplots(number, 1)))
    assert call(study, counted, {"ax": axes[0] if number == 1 else axes}) is figure
    assert all(ax.has_data() for ax in axes) and not figure.legends
    assert type(call(study, counted, {})) is Figure
    assert dict(matplotlib.rcParams) == before
    with pytest.raises(ValueError, match=f"^ax: got 3 axes, this plot has {number}$"):
        call(study, counted, {"ax": Figure().subplots(3)})


@pytest.mark.parametrize("name", PLOTS)
def test_without_matplotlib(name, study, counted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError) as caught:
        PLOTS[name][0](study, counted, {})
    assert str(caught.value) == 'plots need matplotlib; write pip install "tensormetrics[plot]"'


def tick_labels(axis):
    """Those within the limits: the others are not drawn."""
    low, high = sorted(axis.get_view_interval())
    shown = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    labels = [label for tick in shown for label in (tick.label1, tick.label2)]
    return [label for label in labels if label.get_visible() and label.get_text()]


def test_the_command_line_says_the_same(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    np.save(tmp_path / "y.npy", np.array([0, 0, 1, 1]))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    words = 'plots need matplotlib; write pip install "tensormetrics[plot]"\n'
    arguments = [f"{tmp_path}/x.npy", f"{tmp_path}/y.npy", "--plot", f"{tmp_path}/o.png"]
    found = CliRunner().invoke(main, ["retrieval", *arguments])
    assert found.exit_code == 2 and found.stderr.endswith(f"--plot: {words}")
    found = CliRunner().invoke(main, ["demo", "--output", str(tmp_path), "--device", "cpu"])
    assert found.exit_code == 2 and found.stderr.endswith(f": {words}")


@pytest.mark.parametrize("picture", PICTURES, indirect=True)
def test_nothing_is_cut_off_or_covered(picture):
    picture.draw_without_rendering()
    axes = [axis for ax in picture.axes for axis in (ax.xaxis, ax.yaxis)]
    ticks = {label for axis in axes for tick in axis.get_major_ticks() for label in (tick.label1, tick.label2)}
    texts = [text for text in picture.findobj(Text) if text.get_visible() and text.get_text() and text not in ticks]
    frame = picture.bbox.padded(1)
    for text in texts + [label for axis in axes for label in tick_labels(axis)]:
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1, text
    for legend in picture.legends + [legend for ax in picture.axes if (legend := ax.get_legend())]:
        assert not any(legend.get_window_extent().overlaps(ax.get_window_extent()) for ax in picture.axes)
    for axis in axes:
        labels = tick_labels(axis)
        if not any(label.get_rotation() % 90 for label in labels):
            boxes = [label.get_window_extent().padded(-1) for label in labels]
            assert not any(a.overlaps(b) for a, b in combinations(boxes, 2)), axis


@pytest.mark.parametrize("picture", PICTURES, indirect=True)
def test_axes_are_labelled_and_text_is_of_few_sizes(picture):
    assert any(ax.get_xlabel() or ax.get_ylabel() for ax in picture.axes)
    sizes = {text.get_fontsize() for text in picture.findobj(Text) if text.get_visible() and text.get_text()}
    assert sizes <= {plots.FONT - 1, plots.FONT, plots.FONT + 1}


def test_colours_differ_in_grey():
    greys = [lightness(matplotlib.colors.to_rgb(color)) for color in plots.COLORS]
    assert min(abs(a - b) for a, b in pairwise([*greys, greys[0]])) > 15
    for row in greys[:4], greys[4:]:
        assert min(abs(a - b) for a, b in combinations(row, 2)) > 15


def test_bars_and_lines_differ_in_grey():
    bars = [plots.bar_style(i) for i in range(28)]
    for a, b in combinations(bars, 2):
        greys = [lightness(matplotlib.colors.to_rgb(bar["facecolor"])) for bar in (a, b)]
        assert a["hatch"] != b["hatch"] or abs(greys[0] - greys[1]) > 15
    for bar in bars:  # hatches are seen on their bar
        greys = [lightness(matplotlib.colors.to_rgb(bar[part])) for part in ("facecolor", "edgecolor")]
        assert abs(greys[0] - greys[1]) > 35
    lines = [plots.line_style(i) for i in range(35)]
    assert len({(line["linestyle"], line["marker"]) for line in lines}) == 35
    assert all(lightness(matplotlib.colors.to_rgb(line["color"])) < 65 for line in lines)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("short", ["short"]),
        ("", [""]),
        (7, ["7"]),
        ("Male terms and female terms wrt career", ["Male terms and female", "terms wrt", "career"]),
        ("Men and women wrt career", ["Men and women wrt", "career"]),
        ("transformers/bert-base-multilingual-cased", ["transformers/bert-base-", "multilingual-cased"]),
        ("mean_average_precision_at_r_of_all", ["mean_average_precision_at_r_", "of_all"]),
        ("x" * 60, ["x" * 28, "x" * 28, "x" * 4]),
        ("two\nlines", ["two", "lines"]),
    ],
)
def test_labels_in_lines(name, lines):
    assert plots.wrapped(name).split("\n") == lines
    assert plots.lines_of([plots.wrapped(name)]) == len(lines)


def test_a_score_without_a_value_and_one_at_the_bound():
    figure = draw_scores(SCORES, {"f1": (0.2, 0.3)})
    (ax,) = figure.axes
    words = [text.get_text() for text in ax.texts]
    assert words == ["0.700", "1.000", "undefined"] and ax.get_xlim()[1] == 1
    assert len(ax.lines) == 2  # no interval either
    wide = draw_scores({"a": 30.0}, {"a": (10.0, 70.0)}, confidence=0.9).axes[0]
    assert wide.get_xlim() == (7, 73) and "90% interval" in wide.get_legend_handles_labels()[1]


def test_an_interval_is_drawn_for_every_epoch_that_is_marked():
    for epochs, marks in (1, 1), (12, 12), (60, 15):
        bars = demo(epochs).axes[0].containers
        assert [bar.get_label() for bar in bars] == ["accuracy", "macro F1"]
        assert all(sum(len(path) > 0 for path in bar.lines[2][0].get_segments()) == marks for bar in bars)
