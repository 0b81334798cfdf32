"""Every metric's `plot`: what stands in the axes is what `compute` answers."""

import copy
import math
import re
from dataclasses import dataclass

import matplotlib.pyplot as plt
import pytest
import torch
from cases import METRICS
from matplotlib import colors, style
from torch import tensor
from torch.utils._pytree import tree_leaves
from torchmetrics import MetricCollection

from tensormetrics.association import (
    WEAT,
    Query,
    WordEmbeddingModel,
    plot_queries_results,
    plot_ranking,
    plot_ranking_correlations,
)
from tensormetrics.core.arguments.labels import LABELS, label_of
from tensormetrics.core.results.plots import COLORS, palette, plot_values
from tensormetrics.posterior import ConfusionPosterior, Study, plot_difference
from tensormetrics.posterior.comparison.pairwise import pairwise_compare
from tensormetrics.retrieval import HitRate, PairwiseROC
from tensormetrics.retrieval.calculator.metric_names import NAMES as NAMES_OF_CALCULATOR
from tensormetrics.retrieval.runs.measures import CUT, FLAT
from tensormetrics.structured import Family, Suite, derive, macro_average, micro_average
from tensormetrics.structured.suites.coref import METRICS as COREFERENCE
from tensormetrics.uncertainty import Estimate

pd = pytest.importorskip("pandas")


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
    figure, ax = metric.plot()
    assert figure is ax.figure and points(ax, 0) == pytest.approx(values, nan_ok=True)
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
    _, ax = plot_values([first], "x", (0.0, 1.0), True)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["acc", "tpr[0]", "tpr[1]"]
    (bar,) = ax.containers[0].lines[2][0].get_segments()
    assert bar[:, 0].tolist() == pytest.approx([0.3, 0.6]) and ax.get_xlabel() == "x, higher is better"
    assert ax.get_xlim() == pytest.approx((-0.03, 1.03))
    _, ax = plot_values([{"a": 1.0}, {"b": 2.0}], "x")  # a step without a value leaves a gap
    assert points(ax, 1) == pytest.approx([1.0, math.nan, math.nan, 2.0], nan_ok=True)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_intervals_of_a_confusion_posterior():
    metric = ConfusionPosterior(3, ["acc", "tpr"], replicates=200)
    metric.update(torch.randint(0, 3, (60,)), torch.randint(0, 3, (60,)))
    tensors = metric.compute()
    low, high = (torch.cat([tensors[f"{name}/{end}"].view(-1) for name in ("acc", "tpr")]) for end in ("low", "high"))
    for val in (None, tensors, metric.interval()):
        _, ax = metric.plot(val)
        assert [label.get_text() for label in ax.get_yticklabels()] == ["acc", "tpr[0]", "tpr[1]", "tpr[2]"]
        assert points(ax, 0) == pytest.approx([float(tensors["acc"]), *tensors["tpr"].tolist()])
        bars = [bar.lines[2][0].get_segments()[0][:, 0].tolist() for bar in ax.containers]
        assert bars == [pytest.approx(ends) for ends in zip(low.tolist(), high.tolist(), strict=True)]


def test_plot_of_values_of_forward_draws_points_and_lines():
    metric = ConfusionPosterior(3, ["acc", "tpr"], replicates=50)
    steps = [metric(torch.randint(0, 3, (50,)), torch.randint(0, 3, (50,))) for _ in range(2)]
    _, ax = metric.plot(steps[0])
    assert points(ax, 0) == pytest.approx([float(steps[0]["acc"]), *steps[0]["tpr"].tolist()])
    _, ax = metric.plot(steps)
    assert len(ax.containers) == 4 and ax.get_xlabel() == "step"
    _, ax = metric.plot([metric.compute(), metric.compute()])
    assert len(ax.containers) == 4 and len(ax.containers[0].lines[2][0].get_segments()) == 2


def test_given_axes_and_a_collection():
    inputs = torch.randn(30, 3), torch.randint(0, 3, (30,))
    figure, ax = plt.subplots()
    metric = HitRate(2)
    assert metric.plot(metric(*inputs), ax=ax) == (figure, ax)
    plt.close(figure)
    collection = MetricCollection({"a": HitRate(1), "b": HitRate(3)})
    collection.update(*inputs)
    for (_, ax), value in zip(collection.plot(), collection.compute().values(), strict=True):
        assert points(ax, 0) == pytest.approx([float(value)])


@dataclass
class Bag:
    items: list[str]


def test_corpora_of_objects():
    family = Family(derive(Bag), {"micro": micro_average(["f1"]), "macro": macro_average(["f1"])}, replicates=50)
    for scores in (family, Suite({"all": copy.deepcopy(family)})):
        scores.update(3 * [Bag(["a"]), Bag(["b"])], 3 * [Bag(["a"]), Bag(["c", "b"])])
        figure, ax = scores.plot()
        assert figure is ax.figure and points(ax, 0) == pytest.approx(list(map(float, scores.compute().values())))
        _, ax = scores.plot([scores.interval(), scores.interval()])
        assert len(ax.containers) == 2 and ax.get_xlabel() == "step"


def test_an_answer_of_run_query():
    model = WordEmbeddingModel.from_tensor(
        torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), list("abcdefgh")
    )
    query = Query([["a", "b"], ["c", "d"]], [["e", "f"], ["g", "h"]], ["x", "y"], ["u", "v"])
    found = WEAT().run_query(query, model, replicates=50)
    _, ax = WEAT().plot(found)
    (bar,) = ax.containers[0].lines[2][0].get_segments()
    assert points(ax, 0) == [float(found["result"])]
    assert bar[:, 0].tolist() == pytest.approx([float(found["low"]), float(found["high"])])
    assert [label.get_text().split() for label in ax.get_yticklabels()] == [query.query_name.split()]
    _, ax = WEAT().plot([found, WEAT().run_query(query, model)])  # without an interval
    assert points(ax, 1) == [float(found["result"])] * 2


LABEL_OF = {
    "VMeasure": "V-measure",
    "v_measure": "V-measure",
    "AveragePrecisionAtR": "MAP@R",
    "mean_average_precision_at_r": "MAP@R",
    "TARAtFAR": "TAR@FAR",
    "RPrecision": "R-precision",
    "r_precision_level0": "R-precision, level 0",
    "mean_average_precision_at_10": "MAP@10",
    "precision_at_1": "precision@1",
    "P_10": "P@10",
    "ndcg_cut_10": "nDCG@10",
    "map@100": "MAP@100",
    "recall_100": "recall@100",
    "hit_rate_at_5": "hit rate@5",
    "recip_rank": "MRR",
    "RankingAUROC": "ranking AUROC",
    "EqualErrorRate": "equal error rate",
    "b_cubed-f1": "B-cubed F1",
    "ceaf_e-recall": "CEAF-e recall",
    "conll-f1": "CoNLL F1",
    "trigger_identification-f1": "trigger identification F1",
    "micro-f1": "micro F1",
    "f1@macro": "macro F1",
    "f1[BORN_IN]": "F1[BORN_IN]",
    "f1[others[]]": "F1[others[]]",
    "micro-f1[a_b]": "micro F1[a_b]",
    "my model (large)": "my model (large)",
}


def test_label_of_a_name_is_what_people_write():
    assert {name: label_of(name) for name in LABEL_OF} == LABEL_OF


def test_labels_of_every_name_have_no_mark_of_code():
    names = [*NAMES_OF_CALCULATOR, *FLAT, *(f"{family}_10" for family in CUT)]
    names += [f"{name}-f1" for name in COREFERENCE] + [case.make.__name__ for case in METRICS.values()]
    labels = {name: label_of(name.format(k=5)) for name in names}
    wrong = {name: label for name, label in labels.items() if re.search(r"_|[a-z][A-Z][a-z]|\bat \d|-f1", label)}
    assert not wrong
    assert [*LABELS] == sorted(LABELS)


def test_a_dark_style_has_light_lines():
    study = Study(0, metrics={"acc": {}})
    for name in "ab":
        study.add_experiment(name, [[9, 1], [2, 8]], prevalence_prior=1, confusion_prior=1)
    with style.context("dark_background"):
        assert palette() != COLORS and len(palette()) == len(COLORS)
        _, ax = HitRate(1).plot([torch.tensor(0.5), torch.tensor(0.6)])
        assert ax.lines[0].get_color() == palette()[0]
        figure = study.plot_metric_summaries("acc")
        dark = [line for ax in figure.axes for line in ax.lines if colors.to_rgb(line.get_color()) == (0, 0, 0)]
        assert dark == []
    assert palette() == COLORS


def test_a_legend_lists_what_is_seen():
    diff = 0.5 + 0.001 * torch.randn(500, generator=torch.Generator().manual_seed(0))
    result = pairwise_compare(diff, min_sig_diff=0.01)
    texts = [text.get_text() for text in plot_difference(result, xlim=(0.49, 0.51)).legends[0].get_texts()]
    assert "median" in texts and not any(text.startswith("equivalence") for text in texts)
    texts = [text.get_text() for text in plot_difference(result, xlim=(-0.1, 0.6)).legends[0].get_texts()]
    assert any(text.startswith("equivalence") for text in texts)


def test_titles_and_sizes():
    result = pairwise_compare(torch.linspace(-0.1, 0.3, 50), min_sig_diff=0.01)
    figure = plot_difference(result, title="A and B", figsize=(5, 2))
    assert figure.get_suptitle() == "A and B" and figure.get_size_inches().tolist() == [5, 2]
    figure, ax = plt.subplots()
    plot_difference(result, title="A and B", ax=ax)
    assert ax.get_title() == "A and B"
    plt.close(figure)
    table = pd.DataFrame([[0.1, 0.2], [0.3, 0.4]], ["small", "large"], ["q", "r"])
    for plot in (plot_queries_results, plot_ranking, plot_ranking_correlations):
        figure = plot(table, title="Mine", figsize=(5, 2))
        assert figure.axes[0].get_title() == "Mine" and figure.get_size_inches().tolist() == [5, 2]
