import numpy as np
import pytest
import torch
from posterior_oracle import GOLDEN, as_float64
from raising import raises
from torchmetrics import MetricCollection

from tensormetrics.core.metric.base import NoDataError
from tensormetrics.posterior import ConfusionPosterior, sample_metrics, sample_sums
from tensormetrics.uncertainty import UncertaintyWarning, as_scalars, compare
from tensormetrics.uncertainty.statistics.samples import equal_tailed


def labels_of(counts, device):
    """Return preds and target that have these counts as confusion matrix."""
    counts = torch.as_tensor(counts)
    cells = torch.arange(counts.numel()).repeat_interleave(counts.flatten()).to(device)
    return cells % len(counts), cells // len(counts)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_confusion_posterior_golden_values_match(device):
    golden = GOLDEN["module"]
    options = {"replicates": golden["num_samples"], "confusion_prior": "perks"}
    metric = ConfusionPosterior(3, ["acc", "f1@macro"], **options).to(device)
    metric.update(*labels_of(golden["counts"], device))
    assert metric.counts.tolist() == golden["counts"]
    observed = np.diag(golden["counts"]).sum() / np.sum(golden["counts"])
    assert float(metric.compute()["acc"]) == pytest.approx(observed, rel=1e-12)
    for name, estimate in metric.interval().items():
        expected = golden["values"][name]
        assert estimate.value.shape == () and estimate.value.dtype == torch.float64
        assert float(estimate.details["median"]) == pytest.approx(expected["median"], rel=1e-5)
        assert [float(estimate.low), float(estimate.high)] == pytest.approx(expected["hdi"], rel=1e-5)
    priors = {"prevalence_prior": golden["prior"], "confusion_prior": golden["prior"]}
    sums = sample_sums(metric.counts, 3, **priors, seed=golden["seed"], names=["posterior"], dtype=torch.float64)
    f1 = 2 * sums.tp / (2 * sums.tp + sums.fp + sums.fn)
    for name, draws in ("acc", sums.tp.sum(-1)), ("f1@macro", f1.mean(-1)):
        expected = as_float64(golden["values"][name]["first_draws"])
        torch.testing.assert_close(draws[:, 0].cpu(), expected, rtol=1e-9, atol=1e-12)


def test_labels_and_scores_of_any_shape_give_equal_counts(device):
    logits, target = torch.randn(2, 5, 4, device=device), torch.randint(0, 4, (2, 5), device=device)
    counts = torch.zeros(4, 4, dtype=torch.int64)
    for row, label in zip(logits.reshape(-1, 4).tolist(), target.flatten().tolist(), strict=True):
        counts[label, row.index(max(row))] += 1
    for preds, truth in (
        (logits.mT, target),
        (logits.flatten(0, 1), target.flatten()),
        (logits.bfloat16().float().mT, target.int()),
        (logits.argmax(-1), target),
        (logits.argmax(-1).flatten().to(torch.uint8), target.flatten().short()),
    ):
        metric = ConfusionPosterior(4).to(device)
        metric.update(preds, truth)
        assert metric.counts.tolist() == counts.tolist()


def test_ignore_index_items_are_not_counted(device):
    for ignored in -100, 1, 7:
        metric = ConfusionPosterior(3, ignore_index=ignored).to(device)
        target = torch.tensor([0, ignored, 2, ignored, 0], device=device)
        metric.update(torch.tensor([0, 2, 1, 99, 2], device=device), target)
        assert metric.counts.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]] and metric.num_invalid == 0


def test_small_integer_types_do_not_wrap(device):
    metric = ConfusionPosterior(300, ignore_index=-100).to(device)
    labels = torch.tensor([0, 44, 156, 255], dtype=torch.uint8, device=device)  # 156 = -100 and 44 = 300 modulo 256
    metric.update(labels, labels)
    assert metric.counts.diagonal()[labels.long()].tolist() == [1, 1, 1, 1]


def test_metrics_do_not_change_each_other(device):
    preds, target = torch.randint(0, 5, (2, 200), device=device)

    def estimates(*metrics, **options):
        metric = ConfusionPosterior(5, metrics, replicates=500, **options).to(device)
        metric.update(preds, target)
        return metric.compute()

    acc_only, combined = estimates("acc"), estimates("mcc", "acc", "accuracy", "tpr")
    for name in ("acc", "accuracy"):
        assert same(acc_only, {f"acc{end}": combined[f"{name}{end}"] for end in ("", "/low", "/high")})
    names = ["mcc", "acc", "accuracy", "tpr"]
    assert list(combined) == [f"{name}{end}" for name in names for end in ("", "/low", "/high")]
    assert combined["tpr/low"].shape == (5,)
    assert not same(acc_only, estimates("acc", seed=1)) and not same(acc_only, estimates("acc", name="other"))
    narrow = estimates("acc", confidence=0.5)
    assert acc_only["acc/low"] < narrow["acc/low"] < narrow["acc/high"] < acc_only["acc/high"]


def test_interval_of_small_sample_contains_observed_score(device):
    metric = ConfusionPosterior(3, ["acc", "tpr", "mcc"], confusion_prior=50.0, replicates=200, labels=list("abc"))
    metric.to(device).update(*labels_of([[4, 0, 0], [0, 3, 0], [0, 0, 0]], device))
    estimates = metric.interval(confidence=0.9)
    for name, estimate in estimates.items():
        is_defined = ~estimate.value.isnan()
        assert ((estimate.low <= estimate.value) & (estimate.value <= estimate.high))[is_defined].all()
        assert estimate.details["median"].shape == estimate.details["mean"].shape == estimate.value.shape
        assert (estimate.details["median"] < 0.99).all()
        assert (estimate.name, estimate.confidence, estimate.method) == (name, 0.9, "posterior (hdi)")
        assert (estimate.items, estimate.groups, estimate.effective_groups) == (7, 7, 7.0)
    assert estimates["acc"].value == estimates["acc"].high == 1 and estimates["acc"].labels is None
    assert estimates["tpr"].labels == ("a", "b", "c")
    assert estimates["tpr"].value.isnan().tolist() == [False, False, True]
    assert estimates["tpr"]["c"].low.isfinite() and estimates["tpr"]["c"].high.isfinite()


def test_interval_with_groups_counts_items_and_groups(device):
    metric = ConfusionPosterior(2, replicates=50, ignore_index=7, interval="eti").to(device)
    target = torch.tensor([0, 1, 0, 1, 1, 7, 7], device=device)
    metric.update(target % 2, target, groups=torch.tensor([5, 5, 5, 9, 9, 9, 3], device=device))
    estimate = metric.interval()["acc"]
    assert (estimate.items, estimate.groups, estimate.method) == (5, 2, "posterior (eti)")
    assert estimate.effective_groups == pytest.approx(25 / 13)


def test_interval_of_batch_counts_items_if_equal(device):
    for ignored, items in ((None, 4), (1, None)):
        metric = ConfusionPosterior(2, batch_shape=(2,), replicates=50, ignore_index=ignored).to(device)
        labels = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]], device=device)
        metric.update(labels, labels)
        assert metric.interval()["acc"].items == metric.interval()["acc"].groups == items


def test_forward_returns_point_values_of_batch(device):
    metric = ConfusionPosterior(2, ["acc", "tpr", "f1@macro"]).to(device)
    metric.update(*labels_of([[5, 0], [0, 5]], device))
    values = metric(*labels_of([[1, 1], [0, 2]], device))
    assert values["acc"] == 0.75 and values["tpr"].tolist() == [0.5, 1.0]
    assert float(values["f1@macro"]) == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert metric.counts.tolist() == [[6, 1], [0, 7]] and metric.update_count == 2
    empty = torch.zeros(0, dtype=torch.int64, device=device)
    assert metric(empty, empty)["acc"].isnan()


def test_unobserved_cells_keep_positive_probability(device):
    metric = ConfusionPosterior(4, ["acc", "tpr", "mcc"], replicates=1000).to(device)
    metric.update(*labels_of([[9, 0, 0, 0], [0, 9, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]], device))
    tensors = metric.compute()
    assert all(tensors[f"{name}/{end}"].isfinite().all() for name in metric.metrics for end in ("low", "high"))
    assert tensors["tpr"].isnan().tolist() == [False, False, True, True]
    assert tensors["acc/low"] < 0.95
    assert tensors["tpr/high"][2] - tensors["tpr/low"][2] > 0.8
    certain = ConfusionPosterior(2, ["acc", "mcc"], prevalence_prior=0, confusion_prior="haldane").to(device)
    certain.update(*labels_of([[9, 0], [0, 9]], device))
    assert all((x == 1).all() for x in certain.compute().values())


def test_batch_shape_equals_separate_metrics(device):
    preds, target = torch.randint(0, 3, (2, 2, 4, 50, 6), device=device)
    options = {"metrics": ["acc", "tpr", "f1@macro", "mae"], "replicates": 200}
    batch = ConfusionPosterior(3, batch_shape=(2, 4), **options).to(device)
    points = batch(preds[:, :, :20], target[:, :, :20])
    batch.update(torch.nn.functional.one_hot(preds[:, :, 20:], 3).movedim(-1, 3).float(), target[:, :, 20:])
    batch_values = batch.compute()
    for i in range(8):
        single = ConfusionPosterior(3, name=f"posterior/{i}", **options).to(device)
        point = single(preds[i // 4, i % 4, :20], target[i // 4, i % 4, :20])
        single.update(preds[i // 4, i % 4, 20:], target[i // 4, i % 4, 20:])
        assert same(single.compute(), {name: tensor[i // 4, i % 4] for name, tensor in batch_values.items()})
        for metric in point:
            torch.testing.assert_close(points[metric][i // 4, i % 4], point[metric])


def test_intervals_of_each_dtype_match_quantiles(device):
    preds, target = torch.randint(0, 3, (2, 60), device=device)
    for dtype in torch.float32, torch.float64:
        options = {"replicates": 500, "dtype": dtype, "confidence": 0.9}
        both = [ConfusionPosterior(3, "ppv", interval=name, **options).to(device) for name in ("hdi", "eti")]
        for metric in both:
            metric.update(preds, target)
        hdi, eti = (metric.interval()["ppv"] for metric in both)
        (samples,) = sample_metrics(both[0].counts, "ppv", 500, names=["posterior"], dtype=dtype)
        expected = np.quantile(samples[:, 0].cpu().double().numpy(), [0.5, 0.05, 0.95], axis=0)
        np.testing.assert_allclose(torch.stack([eti.details["median"], eti.low, eti.high]).cpu(), expected, 1e-12)
        mean = samples[:, 0].double().mean(0)
        torch.testing.assert_close(eti.details["mean"], mean)
        assert torch.equal(eti.details["median"], hdi.details["median"]) and not torch.equal(eti.low, hdi.low)


def test_methods_give_expected_intervals(device):
    preds, target = labels_of([[50, 1], [2, 40]], device)
    estimates = {}
    for method in "posterior", "prior", "random", "input":
        metric = ConfusionPosterior(2, ["acc", "tpr"], method=method, replicates=4000).to(device)
        point = metric(preds, target)
        estimates[method] = metric.interval()["acc"]
        assert estimates[method].value == point["acc"] and estimates[method].method == f"{method} (hdi)"
    assert estimates["input"].low == estimates["input"].high == point["acc"]
    medians = {method: estimate.details["median"] for method, estimate in estimates.items()}
    assert abs(medians["posterior"] - point["acc"]) < 0.02 and abs(medians["prior"] - 0.5) < 0.05
    assert abs(medians["random"] - 0.5) < 0.02
    assert estimates["prior"].high - estimates["prior"].low > 0.8
    improper = ConfusionPosterior(2, method="prior", confusion_prior=0).to(device)
    improper.update(preds, target)
    message = "method: got 'prior' with an improper prior; give every row a concentration above 0"
    with raises(ValueError, message):
        improper.compute()


def test_equal_tailed_ignores_nan_samples(device):
    x = torch.tensor([[3.0, torch.nan, 1, 2], [torch.nan] * 4], device=device)
    estimates = torch.stack([*equal_tailed(x, 0.5, dim=1)])
    assert estimates[:, 0].tolist() == [2, 1.5, 2.5] and estimates[:, 1].isnan().all()
    assert equal_tailed(x[:, :0], dim=1).low.shape == (2,)


def test_merge_state_other_num_classes_raises():
    metrics = [ConfusionPosterior(C) for C in (2, 3)]
    for metric in metrics:
        metric.update(torch.tensor([0, 1]), torch.tensor([0, 0]))
    for incoming in metrics[1], metrics[1].metric_state:
        message = "incoming_state: got counts of shape (3, 3), wanted (2, 2); merge metrics of equal options"
        with raises(ValueError, message):
            metrics[0].merge_state(incoming)
        assert metrics[0].counts.sum() == 2


def test_confusion_posterior_in_collection_keeps_streams_separate(device):
    collection = MetricCollection({"a": ConfusionPosterior(3), "b": ConfusionPosterior(3, "acc", seed=1)}).to(device)
    preds, target = torch.randint(0, 3, (2, 50), device=device)
    accuracy = float((preds == target).double().mean())
    assert float(collection(preds, target)["a_acc"]) == pytest.approx(accuracy, rel=1e-12)
    collection.update(preds, target)
    scalars = as_scalars(collection.compute(), "val/")
    assert len(scalars) == 6 and scalars["val/a_acc"] == scalars["val/b_acc"]
    assert scalars["val/a_acc/low"] != scalars["val/b_acc/low"]


def test_update_invalid_inputs_raise():
    update, labels = ConfusionPosterior(3).update, torch.zeros(4).long()
    for preds, target, scores in (
        (torch.zeros(4), labels, (4, 3)),
        (torch.zeros(4, 5, 3), torch.zeros(4, 5).long(), (4, 3, 5)),
        (torch.zeros(5).long(), labels, (4, 3)),
    ):
        shape = tuple(target.shape)
        got = f"got {preds.dtype} of shape {tuple(preds.shape)} with a target of shape {shape}"
        with raises(ValueError, f"preds: {got}, wanted integer labels {shape} or floating scores {scores}"):
            update(preds, target)
    with raises(ValueError, "preds: got torch.complex64, wanted an integer dtype; write preds.long()"):
        update(labels.cfloat(), labels)
    with raises(ValueError, "target: got torch.float32, wanted an integer dtype; write target.long()"):
        update(labels, torch.zeros(4))
    with raises(ValueError, "devices differ: preds on meta, target on cpu, state on cpu; move them with .to(device)"):
        update(labels.to("meta"), labels)
    with raises(ValueError, "target: got shape (), wanted (N, ...)"):
        update(labels[0], labels[0])
    with raises(ValueError, "target: got shape (3, 4), wanted (2, N, ...)"):
        ConfusionPosterior(3, batch_shape=(2,)).update(torch.zeros(3, 4).long(), torch.zeros(3, 4).long())
    for preds, target, message in (
        ([0, 5], [0, 1], "preds: got labels from 5 to 5, wanted 0 to 2"),
        ([0, 1], [-1, 3], "target: got labels from -1 to 3, wanted 0 to 2"),
        ([[0.0, torch.nan, 1]], [0], "preds: got nan scores, wanted 0 to 2"),
    ):
        with raises(ValueError, message):
            update(torch.tensor(preds), torch.tensor(target))
    with raises(TypeError, "'p_pred' is a root quantity, not a metric: it can be sampled but not reported"):
        ConfusionPosterior(3, ["acc", "p_pred"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": "wald"}, "interval: got 'wald', wanted one of 'hdi', 'eti'"),
        ({"method": "mcmc"}, "method: got 'mcmc', wanted one of 'posterior', 'prior', 'random', 'input'"),
        ({"dtype": torch.half}, "dtype: got torch.float16, wanted one of torch.float32, torch.float64"),
        ({"batch_shape": (2, -1)}, "batch_shape: got -1, wanted an integer >= 0"),
        ({"metrics": "tpr@binary+positive_class=3"}, "positive_class: got 3, wanted -3 to 2 for 3 classes"),
        ({"num_classes": 1}, "num_classes: got 1, wanted an integer >= 2"),
        ({"metrics": ["acc", "ff1"]}, "metric 'ff1': there is no metric 'ff1'; the closest are f1, offby1"),
        ({"confidence": 95}, "confidence: got 95, wanted a number in (0, 1]"),
        ({"batch_shape": 3}, "batch_shape: got 3, wanted a tuple of integers; write (3,)"),
        ({"ignore_index": 1.5}, "ignore_index: got 1.5, wanted None or an integer"),
        ({"metrics": []}, "metrics: got [], wanted at least one, such as 'acc'"),
        ({"labels": ["a", "b"]}, "labels: got ['a', 'b'], wanted 3 distinct names"),
        ({"labels": "abc"}, "labels: got shape (), wanted a one-dimensional list of labels"),
        ({"replicates": 0}, "replicates: got 0, wanted an integer >= 1"),
        ({"seed": -1}, "seed: got -1, wanted an integer >= 0"),
        ({"prevalence_prior": -1}, "prevalence_prior: got entries from -1.0 to -1.0, wanted finite ones >= 0"),
        ({"confusion_prior": [1, 2]}, "confusion_prior: got an array of shape (2,), wanted (3, 3)"),
        ({"confusion_prior": 5e36}, "confusion_prior: got entries from 5e+36 to 5e+36, wanted at most 1e+37 in a row"),
        ({"confusion_prior": 1e39}, "confusion_prior: got entries from 1e+39 to 1e+39, wanted at most 1e+37"),
        (
            {"prevalence_prior": "balanced"},
            "prevalence_prior: got 'balanced' for shape (3,), wanted (C, C); write 'perks'",
        ),
    ],
)
def test_confusion_posterior_invalid_options_raise(options, message):
    with raises(ValueError, message):
        ConfusionPosterior(**{"num_classes": 3, **options})


def test_plot_posterior_draws_each_class(device):
    Figure = pytest.importorskip("matplotlib.figure").Figure
    metric = ConfusionPosterior(3, ["acc", "tpr"], replicates=300, batch_shape=(2,)).to(device)
    preds, target = torch.randint(0, 3, (2, 2, 60), device=device)
    metric.update(preds, target)
    figure, _ = metric.plot_posterior("tpr", hide="extrema")
    names = [ax.get_ylabel() for ax in figure.axes]
    assert type(figure) is Figure and names == [f"{i}, class {c}" for i in (0, 1) for c in range(3)]
    assert figure.axes[-1].get_xlabel() == "True Positive Rate"
    medians, points = metric.interval()["tpr"].details["median"], metric.compute()["tpr"]
    for k, ax in enumerate(figure.axes):
        lines = [tuple(line.get_xdata()) for line in ax.lines]
        assert (float(medians.flatten()[k]),) * 2 in lines and (float(points.flatten()[k]),) in lines
    single = Figure().subplots()
    unbatched = ConfusionPosterior(3, replicates=300).to(device)
    unbatched.update(preds[0], target[0])
    assert unbatched.plot_posterior(ax=single) == (single.figure, [single]) and single.get_ylabel() == "acc"
    with pytest.raises(ValueError, match="^metric: got 'mcc', wanted one of 'acc', 'tpr'$"):
        metric.plot_posterior("mcc")
    metric.num_invalid += 1
    with pytest.raises(ValueError, match="^ConfusionPosterior: got 1 items with a label outside 0..2 or "):
        metric.plot_posterior()


def test_plot_posterior_of_ranks_uses_synchronized_counts():
    pytest.importorskip("matplotlib")
    local_counts, remote_counts = torch.tensor([[8, 1], [2, 5]]), torch.tensor([[3, 4], [0, 9]])

    def gather(state, group=None):
        return [state, remote_counts if state.shape == remote_counts.shape else torch.zeros_like(state)]

    ranks = {"distributed_available_fn": lambda: True, "dist_sync_fn": gather}
    metric, single = (ConfusionPosterior(2, replicates=300, **options) for options in (ranks, {}))
    with pytest.raises(
        NoDataError, match=r"^ConfusionPosterior\.plot_posterior\(\) was called before update\(\); update it first$"
    ):
        single.plot_posterior()
    for posterior, counts in (metric, local_counts), (single, local_counts + remote_counts):
        posterior.update(*labels_of(counts, "cpu"))
    lines, expected = (
        [tuple(line.get_xdata()) for line in posterior.plot_posterior()[1][0].lines] for posterior in (metric, single)
    )
    assert lines == expected and torch.equal(metric.counts, local_counts)


def test_threshold_scores_above_are_class_1(device):
    scores, target = torch.rand(3, 40, 2, device=device), torch.randint(0, 2, (3, 40, 2), device=device)
    scores[0, 0, 0] = 0.3  # not above
    by_threshold, by_label = (ConfusionPosterior(2, "f1", threshold=t, batch_shape=(3,)) for t in (0.3, None))
    by_threshold.to(device).update(scores, target)
    by_label.to(device).update((scores > 0.3).long(), target)
    assert torch.equal(by_threshold.counts, by_label.counts) and same(by_threshold.compute(), by_label.compute())
    probabilities, halved = ConfusionPosterior(2).to(device), ConfusionPosterior(2, threshold=0.5).to(device)
    for metric in probabilities, halved:
        metric.update(scores[1], target[1])
    assert torch.equal(probabilities.counts, halved.counts)
    if device.type == "cpu":
        with raises(ValueError, "preds: got a score that is no probability, wanted 0 to 1"):
            probabilities.update(5 * scores[1], target[1])
    labels = ConfusionPosterior(2, threshold=0.3).to(device)
    labels.update(target[0], target[0])  # labels stay labels
    assert labels.counts[0, 1] == 0 == labels.counts[1, 0]
    for options, message in (
        ((3, 0.5), "threshold: got 0.5 for 3 classes, wanted num_classes=2"),
        ((2, "x"), "threshold: got 'x', wanted None or a number"),
        ((2, float("nan")), "threshold: got nan, wanted None or a number"),
    ):
        with raises(ValueError, message):
            ConfusionPosterior(options[0], threshold=options[1])
    single = ConfusionPosterior(2, threshold=0.5)
    with pytest.raises(ValueError, match=r"wanted integer labels \(4,\) or floating scores \(4,\)$"):
        single.update(torch.rand(4, 2), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="^preds: got nan scores, wanted 0 to 1$"):
        single.update(torch.tensor([torch.nan]), torch.tensor([1]))


def update_metric(metrics, preds, target, **identity):
    metric = ConfusionPosterior(3, metrics, replicates=50).to(target.device)
    metric.update(preds, target, **identity)
    return metric


def test_compare_other_targets_of_same_ids_raises(device):
    target = torch.arange(30, device=device) % 3
    other_target = target.roll(3).where(target != 1, 2)
    for identity in ({"ids": target.cumsum(0)}, {"groups": target.cumsum(0)}):
        a, same_items = (update_metric("acc", preds, target, **identity) for preds in (target, 0 * target))
        assert float(compare(a, same_items)["acc"].difference) == pytest.approx(2 / 3)
        with pytest.raises(ValueError, match="^a, b: their items differ"):
            compare(a, update_metric("acc", target, other_target, **identity))


def test_compare_errors_treats_lower_as_better(device):
    target = torch.arange(60, device=device) % 3
    right, wrong = (update_metric(["acc", "mae"], pred, target, ids=target.cumsum(0)) for pred in (target, 0 * target))
    comparisons = compare(right, wrong)
    assert comparisons["acc"].low > 0 > comparisons["mae"].high
    assert all(comparison.p_better > 0.99 for comparison in comparisons.values())


def test_compare_single_group_spans_range_of_metric(device):
    target = torch.arange(30, device=device) % 3
    metrics = ["mcc", "tpr", "acc", "mae"]
    pair = [update_metric(metrics, preds, target, groups=0 * target) for preds in (target, target.roll(1))]
    with pytest.warns(UncertaintyWarning, match="^one pair: its spread cannot be known"):
        comparisons = compare(*pair)
    ends = {name: (comparison.low.tolist(), comparison.high.tolist()) for name, comparison in comparisons.items()}
    assert ends == {"mcc": (-2, 2), "tpr": ([-1.0] * 3, [1.0] * 3), "acc": (-1, 1), "mae": (-2, 2)}


def test_compare_perfect_models_has_nonzero_interval(device):
    target = torch.arange(30, device=device) % 3
    pair = [update_metric(["acc", "f1@macro", "tpr"], target, target, ids=target.cumsum(0)) for _ in range(2)]
    for comparison in compare(*pair).values():
        assert not comparison.difference.any() and (comparison.p_value == 1).all()
        assert (comparison.low < -0.01).all() and (comparison.high > 0.01).all()
        assert (comparison.low > -0.4).all() and (comparison.high < 0.4).all()


def test_compare_with_labels_out_of_range_raises():
    metric = update_metric("acc", torch.tensor([0, 1]), torch.tensor([0, 1]), ids=torch.arange(2))
    metric.num_invalid += 1  # as on a GPU
    with pytest.raises(ValueError, match="^ConfusionPosterior: got 1 items with a label outside 0..2 or "):
        compare(metric, metric)
