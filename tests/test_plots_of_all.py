"""What all plots share: nothing cut off or covered, no global state, greys apart; and what stands in the axes is what
`compute` answers."""

import math
import re
import sys
import warnings
from itertools import combinations

import numpy as np
import pytest
import torch
from cases import METRICS, PLACES
from click.testing import CliRunner
from torch import tensor
from torch.utils._pytree import tree_leaves

from tensormetrics import association, posterior
from tensormetrics.__main__ import main
from tensormetrics._cli.output import drawn_scores
from tensormetrics.core.arguments.labels import LABELS, label_of
from tensormetrics.core.results import plots
from tensormetrics.posterior import ConfusionPosterior
from tensormetrics.posterior.plots.distributions import Shown
from tensormetrics.retrieval import PairwiseROC
from tensormetrics.retrieval.calculator.metric_names import NAMES as NAMES_OF_CALCULATOR
from tensormetrics.retrieval.runs.measures import CUT, FLAT
from tensormetrics.structured.suites.coref import METRICS as COREFERENCE
from tensormetrics.uncertainty import Estimate, Table, UncertaintyWarning

matplotlib = pytest.importorskip("matplotlib")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.text import Text  # noqa: E402

PRIORS = {"prevalence_prior": 1, "confusion_prior": 1}
LONG = "transformers/bert-base-multilingual-cased-finetuned-on-something-else"
SHORT = "mlp/a"
QUERIES = [f"Male terms and female terms wrt career words and family words {i}" for i in range(10)]


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


ANSWERS = [
    Estimate(*torch.zeros(3), name=name, details={"effect_size_x": x, "effect_size_y": y})
    for name, x, y in ((QUERIES[0], 1.3, -0.9), ("b", 0.1, 1.9))
]
# name -> call of (study, metric, options), and how many axes the plot has
PLOTS = {
    "plot_eat_map": (lambda s, m, o: association.functional.plot_eat_map(ANSWERS, **o)[0], 1),
    "plot_distributions": (
        lambda s, m, o: posterior.functional.plot_distributions(
            [Shown(LONG, s.column("acc", None, LONG))], "acc", (0, 1), **o
        )[0],
        1,
    ),
    "Study.plot": (lambda s, m, o: s.plot("acc", **o)[0], 2),
    "ConfusionPosterior.plot": (lambda s, m, o: m.plot(**o)[0], 1),
    "ConfusionPosterior.plot_posterior": (lambda s, m, o: m.plot_posterior(**o)[0], 1),
}


def demo(epochs):
    for module in "sklearn", "tqdm":
        pytest.importorskip(module)
    from tensormetrics._cli.demo import SCORES as SCORES_OF_DEMO
    from tensormetrics._cli.demo import draw as draw_demo

    interval = {"value": 0.9, "low": 0.8, "high": 0.95}
    history = [{"epoch": i + 1, **dict.fromkeys(SCORES_OF_DEMO, interval)} for i in range(epochs)]
    generator = torch.Generator().manual_seed(0)
    return draw_demo(history, torch.randn(50, 16, generator=generator), torch.arange(50) % 10)


SCORES = {"mean_average_precision_at_r": 0.7, "a score of a name that is much too long for a line": 1.0, "f1": np.nan}
SCORES["recall"] = Estimate(*torch.tensor([0.25, 0.2, 0.3]))
PICTURES = {
    **{name: call for name, (call, _) in PLOTS.items()},
    "pooled": lambda s, m, o: s.plot("acc", experiments=[LONG, "transformers/aggregated"])[0],
    "difference": lambda s, m, o: s.plot("acc", minus=LONG, rope=0.01)[0],
    "forest": lambda s, m, o: s.table("acc").plot()[0],
    "scores": lambda s, m, o: drawn_scores(Table([*SCORES], ["value"], [[x] for x in SCORES.values()]), None),
    "demo, one epoch": lambda s, m, o: demo(1),
    "demo, many epochs": lambda s, m, o: demo(60),
    "command line, association": lambda s, m, o: drawn_scores(
        Table([*QUERIES, "b"], ["weat", "p (max-t) of weat", "rnd"], 10 * [[0.3, 0.01, np.nan]] + [{"rnd": -1.0}]), None
    ),
}


@pytest.fixture
def picture(request, study, counted):
    return PICTURES[request.param](study, counted, {})


def test_every_public_plot_is_here():
    found = {name for place in PLACES for name in place.__all__ if name.startswith("plot_")}
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


def test_without_matplotlib(study, counted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for call, _ in PLOTS.values():
        with pytest.raises(ImportError, match=r'^plots need matplotlib; write pip install "tensormetrics\[plot\]"$'):
            call(study, counted, {})


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
    assert any(ax.get_xlabel() or ax.get_ylabel() for ax in picture.axes)
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


def test_lines_differ_in_grey():
    assert len({(style["linestyle"], style["marker"]) for style in map(plots.line_style, range(35))}) == 35


def test_scores_of_a_command_are_points_with_intervals_where_there_are_some():
    (ax,) = PICTURES["scores"](None, None, None).axes
    assert points(ax, 0) == pytest.approx([0.7, 1.0, np.nan, 0.25], nan_ok=True)
    bars = [segment[:, 0].tolist() for segment in ax.containers[0].lines[2][0].get_segments() if len(segment)]
    assert pytest.approx([0.2, 0.3]) in bars


def points(ax, axis: int) -> list[float]:
    return [float(p) for line in ax.containers for p in line.lines[0].get_data()[axis]]


def middles(value):
    """Return the values that are drawn as points, without the ends of intervals."""
    if isinstance(value, dict):
        return {key: middles(part) for key, part in value.items() if not key.endswith(("/low", "/high"))}
    return value.value if isinstance(value, Estimate) else value


@pytest.mark.parametrize("case", METRICS.values(), ids=METRICS.keys())
def test_every_metric_shows_its_values(case, generator):
    metric = case.make()
    metric.update(*case.inputs(generator, 60))
    values = [float(leaf) for leaf in tree_leaves(middles(metric.compute()))]
    if isinstance(metric, PairwiseROC):  # a curve, with a test of its own
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertaintyWarning)  # some have few items
        figure, ax = metric.plot()
        try:
            has_interval = metric.interval() is not None
        except (NotImplementedError, ValueError):
            has_interval = False
    assert figure is ax.figure and points(ax, 0) == pytest.approx(values, nan_ok=True)
    assert any(len(bar.lines[2]) for bar in ax.containers) == has_interval
    low, high = metric.plot_lower_bound, metric.plot_upper_bound
    assert all((low is None or value >= low) and (high is None or value <= high) for value in values)
    _, ax = metric.plot([metric.compute(), metric.compute()])
    assert points(ax, 1) == pytest.approx([value for value in values for _ in range(2)], nan_ok=True)


@pytest.mark.parametrize("case", METRICS.values(), ids=METRICS.keys())
def test_every_metric_says_whether_forward_has_a_gradient(case, generator):
    metric = case.make()
    inputs = case.inputs(generator, 60)
    leaves = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    for leaf in leaves:
        leaf.requires_grad_()
    answers = [leaf for leaf in tree_leaves(metric(*inputs)) if isinstance(leaf, torch.Tensor)]
    assert any(answer.requires_grad for answer in answers) == metric.is_differentiable


def test_roc_is_drawn_as_tar_over_far_on_a_logarithmic_axis(generator):
    far = (0.5, 0.0, 1e-2, 0.1)
    metric = PairwiseROC(far)
    metric.update(torch.randn(40, 2, generator=generator), torch.randint(3, (40,), generator=generator))
    value, estimates = metric.compute(), metric.interval()
    order = [2, 3, 0]  # by rate; 0 has no logarithm
    figure, ax = metric.plot()
    assert figure is ax.figure and ax.get_xscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("FAR at most", "TAR, higher is better")
    assert points(ax, 0) == [far[i] for i in order] and points(ax, 1) == value.tar[order].tolist()
    _, ax = metric.plot([value, estimates])
    assert len(ax.containers) == 2 and [text.get_text() for text in ax.get_legend().get_texts()] == ["step 0", "step 1"]
    bars = [segment[:, 1] for segment in ax.containers[1].lines[2][0].get_segments()]
    ends = torch.stack([estimates["tar"].low, estimates["tar"].high], 1)[order]
    torch.testing.assert_close(torch.stack([*map(torch.as_tensor, bars)]), ends)
    _, theirs = metric.plot(ax=plt.figure().subplots())
    assert points(theirs, 1) == value.tar[order].tolist()


def test_intervals_gaps_and_classes():
    first = {"acc": Estimate(tensor(0.5), tensor(0.3), tensor(0.6)), "tpr": tensor([0.1, 0.2])}
    _, ax = plots.plot_values([first], "x", (0.0, 1.0), True)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["accuracy", "TPR[0]", "TPR[1]"]
    (bar,) = ax.containers[0].lines[2][0].get_segments()
    assert bar[:, 0].tolist() == pytest.approx([0.3, 0.6]) and ax.get_xlabel() == "score, higher is better"
    assert ax.get_xlim() == pytest.approx((-0.03, 1.03))
    _, ax = plots.plot_values([{"a": 1.0}, {"b": 2.0}], "x")  # a step without a value leaves a gap
    assert points(ax, 1) == pytest.approx([1.0, math.nan, math.nan, 2.0], nan_ok=True)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_series_on_the_same_axes_have_colors_rows_and_a_legend_of_their_own():
    history = {"acc": [0.5, 0.6, 0.8], "f1": [0.4, 0.7]}
    figure, ax = plots.plot_values(plots.steps_of(history), "x")
    assert points(ax, 1) == pytest.approx([0.5, 0.6, 0.8, 0.4, 0.7, math.nan], nan_ok=True)
    plots.plot_values([{"map": value} for value in (0.1, 0.2, 0.3)], "x", ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["accuracy", "F1", "MAP"]
    assert len({line.lines[0].get_color() for line in ax.containers}) == 3
    _, ax = plots.plot_values([{"acc": 0.5, "f1": 0.4}], "x")
    plots.plot_values([0.9], "HitRate", ax=ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["accuracy", "F1", "hit rate"]
    assert points(ax, 1) == [0, 1, 2] and ax.containers[2].lines[0].get_color() != ax.containers[0].lines[0].get_color()


def test_intervals_of_a_confusion_posterior():
    metric = ConfusionPosterior(3, ["acc", "tpr"], replicates=200)
    metric.update(torch.randint(0, 3, (60,)), torch.randint(0, 3, (60,)))
    tensors = metric.compute()
    low, high = (torch.cat([tensors[f"{name}/{end}"].view(-1) for name in ("acc", "tpr")]) for end in ("low", "high"))
    for val in (None, tensors, metric.interval()):
        _, ax = metric.plot(val)
        assert [label.get_text() for label in ax.get_yticklabels()] == ["accuracy", "TPR[0]", "TPR[1]", "TPR[2]"]
        assert points(ax, 0) == pytest.approx([float(tensors["acc"]), *tensors["tpr"].tolist()])
        bars = [bar.lines[2][0].get_segments()[0][:, 0].tolist() for bar in ax.containers]
        assert bars == [pytest.approx(ends) for ends in zip(low.tolist(), high.tolist(), strict=True)]


def test_an_answer_of_run_query():
    model = association.WordEmbeddingModel.from_tensor(
        torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), list("abcdefgh")
    )
    query = association.Query([["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]], ["x", "y"], ["u", "v"])
    found = association.WEAT(replicates=50).run_query(query, model)
    _, ax = association.WEAT().plot(found)
    (bar,) = ax.containers[0].lines[2][0].get_segments()
    assert points(ax, 0) == [float(found)]
    assert bar[:, 0].tolist() == pytest.approx([float(found.low), float(found.high)])
    _, ax = association.WEAT().plot([found, association.WEAT().run_query(query, model)])  # without an interval
    assert points(ax, 1) == [float(found)] * 2


def test_labels_of_every_name_have_no_mark_of_code():
    names = [*NAMES_OF_CALCULATOR, *FLAT, *(f"{family}_10" for family in CUT)]
    names += [f"{name}-f1" for name in COREFERENCE] + [case.make.__name__ for case in METRICS.values()]
    labels = {name: label_of(name.format(k=5)) for name in names}
    wrong = {name: label for name, label in labels.items() if re.search(r"_|[a-z][A-Z][a-z]|\bat \d|-f1", label)}
    assert not wrong
    assert [*LABELS] == sorted(LABELS)
