"""Errors and synchronization of a GPU, tested without one: the rows of tests/cases/ on a fake device."""

import copy
import warnings
from contextlib import suppress

import pytest
import torch
from cases import FUNCTIONS, METRICS, FunctionCase, MetricCase
from fake_device import DEVICE, PLACE, Device, DeviceAssert
from test_conformance import N, assert_same, on, rows, with_nonfinite_argument
from torch.utils._pytree import tree_leaves, tree_map
from torchmetrics.utilities.data import dim_zero_cat

from tensormetrics import compare
from tensormetrics.assignment import HungarianMatcher
from tensormetrics.association import WordEmbeddingModel, functional
from tensormetrics.association.metrics.direct_bias import _first_axes
from tensormetrics.association.resampling.bootstrap import _t_scales
from tensormetrics.core.numbers.quantiles import equal_tailed_interval
from tensormetrics.posterior.sampling import arrays
from tensormetrics.retrieval import HitRate
from tensormetrics.retrieval.scores.embedding_metric import EmbeddingMetric
from tensormetrics.structured import RelationScores, SpanScores


def to_cpu(results):
    """Check that all results are on the fake device, and move them to the CPU."""
    assert all(leaf.device == PLACE for leaf in tree_leaves(results))
    return tree_map(lambda x: x.cpu(), results)


@rows(METRICS)
def test_metric_stays_on_device_and_synchronizes_as_declared(case: MetricCase, generator):
    inputs, metric, expected = case.inputs(generator, N), case.make(), case.make()
    for _ in range(2):
        expected.update(*inputs)
    with Device() as device:
        metric.to(DEVICE)
        inputs = on(DEVICE, inputs)
        device.waits.clear()
        for _ in range(2):
            metric.update(*inputs)
        assert case.synchronizes == bool(device.waits), device.waits
        # CPU kernels for small products round differently.
        assert_same(to_cpu(metric.compute()), expected.compute(), 1e-14)


@rows({name: case for name, case in METRICS.items() if {*case.make()._reductions.values()} == {dim_zero_cat}})
@pytest.mark.parametrize("moved", [False, True], ids=["rows of the device", "rows of the host"])
def test_rows_stay_on_device_of_metric_or_inputs(case: MetricCase, moved, generator):
    inputs, metric, expected = case.inputs(generator, N), case.make(), case.make()
    expected.update(*inputs)
    with Device():
        metric.to(DEVICE if moved else "cpu")  # without this the rows are those of the other device
        metric.update(*(inputs if moved else on(DEVICE, inputs)))
        result = tree_map(lambda x: x.cpu(), metric.compute())
    assert_same(result, expected.compute(), 1e-14)


@pytest.mark.full
@rows({name: case for name, case in METRICS.items() if {*case.make()._reductions.values()} == {dim_zero_cat}})
@pytest.mark.parametrize("then", ["forward", "merge", "host"])
@pytest.mark.parametrize("first", ["update", "forward"])
def test_later_rows_move_to_device_of_first_rows(case: MetricCase, first, then, generator):
    batches, metric, expected = [case.inputs(generator, N) for _ in range(3)], case.make(), case.make()
    for inputs in batches:
        expected.update(*inputs)
    with Device():
        (metric.update if first == "update" else metric)(*on(DEVICE, batches[0]))
        if then == "merge":
            other = case.make()
            other.update(*on(DEVICE, batches[1]))
            metric.merge_state(other)
        else:
            metric(*on(DEVICE if then == "forward" else "cpu", batches[1]))
        metric.update(*on(DEVICE, batches[2]))
        states = [getattr(metric, name) for name in metric._defaults]
        assert {state.device for state in states if len(state)} == {PLACE}
        result = tree_map(lambda x: x.cpu(), metric.compute())
    assert_same(result, expected.compute(), 1e-14)


@rows(METRICS)
def test_loaded_state_moves_to_device_of_metric(case: MetricCase, generator):
    inputs, saved, expected = case.inputs(generator, N), case.make(), case.make()
    for metric in (saved, expected):
        metric.persistent(True)
        metric.update(*inputs)
    expected.update(*inputs)
    with Device():
        metric = case.make().to(DEVICE)
        metric.load_state_dict(saved.state_dict(), strict=False)
        metric.update(*on(DEVICE, inputs))
        assert {getattr(metric, name).device for name in metric._defaults} == {PLACE}
        assert_same(to_cpu(metric.compute()), expected.compute(), 1e-14)


@pytest.mark.full
@rows({name: case for name, case in METRICS.items() if case.bad})
@pytest.mark.parametrize("source", [DEVICE, torch.device("cpu")], ids=["device", "host"])
def test_bad_values_on_device_raise_until_reset(case: MetricCase, source, generator):
    inputs, expected = case.inputs(generator, N), case.make()
    expected.update(*inputs)
    for bad in case.bad:
        expected_error = None
        with Device():
            metric = case.make().to(DEVICE)
            metric.update(*on(DEVICE, inputs))
            with pytest.raises(ValueError) as error:  # noqa: PT012  what `update` cannot see, `compute` says
                metric.update(*on(source, bad))
                assert source == DEVICE or not isinstance(metric, EmbeddingMetric), "rows of the host are checked"
                expected_error = f"^{type(metric).__name__}: .*, of an earlier update; call reset"
                metric.compute()
            assert expected_error is None or error.match(expected_error)
            metric.reset()
            metric.update(*on(DEVICE, inputs))
            assert_same(to_cpu(metric.compute()), expected.compute(), 1e-14)


def test_unsigned_labels_beyond_int64_on_device_raise_until_reset(generator):
    rows = torch.rand(6, 3, generator=generator)
    labels = torch.tensor([0, 1, 2, 0, 1, 2], dtype=torch.uint64)
    high = labels.clone()
    high.view(torch.int64)[2] = -7  # 2^64 - 7
    with pytest.raises(ValueError, match="labels: got torch.uint64 above"):
        HitRate(1).update(rows, high)
    with Device() as device:
        metric = HitRate(1).to(DEVICE)
        rows, labels, high = (x.to(DEVICE) for x in (rows, labels, high))
        device.waits.clear()
        metric.update(rows, labels)
        metric.update(rows, high)
        assert device.waits == []
        with pytest.raises(
            ValueError, match=r"^HitRate: embeddings: 1 of 12 .* labels above 2\*\*63 - 1, the first is"
        ):
            metric.compute()
        metric.reset()
        metric.update(rows, labels)
        metric.compute()


# Not the numbers of variables, for each of which there is memory, and of the documents of a test.
NUMBERED = "structured.LatentMatch", "structured.latent_overlap", "structured.Smatch"


@pytest.mark.full
@rows({name: case for name, case in (METRICS | FUNCTIONS).items() if name not in NUMBERED})
def test_integers_out_of_range_on_device_end_no_process(case: MetricCase | FunctionCase, generator):
    is_metric = isinstance(case, MetricCase)
    arguments = case.inputs(generator, 12 if is_metric else (3,))
    for index, argument in enumerate(arguments):
        if argument.is_floating_point() or argument.dtype == torch.bool or not argument.numel():
            continue
        for value in (-7, 10**6, 2**62):
            wrong = argument.clone()
            wrong.view(-1)[wrong.numel() // 2] = min(value, torch.iinfo(wrong.dtype).max)
            with Device(), suppress(ValueError):  # but no DeviceAssert
                changed = on(DEVICE, (*arguments[:index], wrong, *arguments[index + 1 :]))
                if not is_metric:
                    case.call(*changed)
                    continue
                metric = case.make().to(DEVICE)
                metric.update(*changed)
                metric.compute()


@pytest.mark.parametrize("make", [SpanScores, RelationScores])
def test_label_numbers_without_a_label_on_device_raise_until_reset(make):
    rows = torch.tensor([[[0, 1, 2], [1, 3, 5]], [[2, 0, 1], [7, 2, 3]]])  # labels 2 and 7 have no name
    for labels, invalid in (["A", "B"], 2), (["A", "B", "C"], 1):
        with Device():
            metric = make(labels=labels, replicates=20).to(DEVICE)
            metric.update(rows.to(DEVICE), rows[:, :1].to(DEVICE))
            for read in (metric.compute, metric.interval, metric.report, lambda m=metric: compare(m, m)):
                with pytest.raises(ValueError, match=rf"^{make.__name__}: got \d labels .* earlier update; call reset"):
                    read()
            other = make(labels=labels, replicates=20).to(DEVICE)
            other.merge_state(metric)
            assert metric.num_invalid.item() == other.num_invalid.item() >= invalid
            with pytest.raises(ValueError, match="call reset"):
                other.compute()
            metric.reset()
            metric.update(rows[:1].to(DEVICE), rows[:1].to(DEVICE))
            assert metric.compute()["f1"].item() == 1 if len(labels) > 2 else True


TAGS = ["O", "B-A", "I-A", "E-A"]


def test_tags_that_do_not_fit_on_device_warn_in_compute():
    tags = torch.tensor([[1, 2, 2, -1], [0, 2, 3, 0]])  # 2 and 3 tags, of which iob2 loses 0 and 2
    for mode, warned in ("iob2", ["pred", "ref"]), ("lenient", []):
        with Device() as device, warnings.catch_warnings(record=True) as caught:
            metric = SpanScores().to(DEVICE)
            on_device = tags.to(DEVICE)
            for _ in range(2):
                device.waits.clear()  # the first one copies the rules of the mode
                metric.update_tags(on_device, on_device, mode=mode, vocabulary=TAGS)
            metric.merge_state(copy.deepcopy(metric))
            assert device.waits == []
            warnings.simplefilter("always")
            metric.compute()
        text = "tags do not fit their mode: 8 of 20 tags other than O are left out, some whose prefix is none of it"
        assert [str(w.message) for w in caught] == [f"{name}: {text}" for name in warned]
        assert all(w.filename == __file__ for w in caught)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            SpanScores().update_tags(tags, tags, mode=mode, vocabulary=TAGS)
        assert [str(w.message).partition(":")[0] for w in caught] == warned


@pytest.mark.parametrize("labels", [None, ["A"]])
def test_tags_beyond_vocabulary_raise(labels):
    tags = torch.tensor([[1, 0, 9], [4, -1, 0]])
    with pytest.raises(ValueError, match="vocabulary: document 0: got tag 9 at token 2, wanted a number below 4"):
        SpanScores(labels=labels).update_tags(tags, tags, vocabulary=TAGS)
    with Device():
        metric = SpanScores(labels=labels).to(DEVICE)
        metric.update_tags(tags.to(DEVICE), tags.to(DEVICE).clamp(max=3), vocabulary=TAGS)
        with pytest.raises(ValueError, match="^SpanScores: got 2 .*numbers of tags that are .* earlier update; call"):
            metric.compute()


@pytest.mark.parametrize("class_cost", ["softmax", "focal"])
@pytest.mark.parametrize("label", [-1, 3])
def test_matcher_label_out_of_range_on_device_raises(class_cost, label):
    outputs = {"pred_logits": torch.rand(2, 4, 3), "pred_boxes": torch.rand(2, 4, 4)}
    targets = [{"labels": torch.tensor([0, 1]), "boxes": torch.rand(2, 4)} for _ in range(2)]
    targets[1]["labels"][1] = label
    with Device() as device:
        outputs = {name: value.to(DEVICE) for name, value in outputs.items()}
        targets = [{name: value.to(DEVICE) for name, value in target.items()} for target in targets]
        with pytest.raises(ValueError, match=f"got the label {label}, wanted 0 to 2"):
            HungarianMatcher(class_cost=class_cost, nonfinite="raise")(outputs, targets)
        matcher = HungarianMatcher(class_cost=class_cost)
        device.waits.clear()
        matcher(outputs, targets)
        right = [target | {"labels": target["labels"].clamp(0, 2)} for target in targets]
        for call in (matcher, copy.deepcopy(matcher).layers):
            with pytest.raises(ValueError, match=f"got the label {label} in an earlier call, wanted 0 to 2"):
                call(outputs, right)
        assert device.waits == [] and matcher.status.tolist() == [0, 2]
        for _ in range(2):  # an error is raised once
            matcher(outputs, right)
        assert matcher.status.tolist() == [0, 0]


@rows(FUNCTIONS)
def test_function_results_stay_on_device(case: FunctionCase, generator):
    inputs = case.inputs(generator, (2, 3))
    with Device():
        results = to_cpu(case.call(*on(DEVICE, inputs)))
    assert_same(results, case.call(*inputs), case.rtol)


def test_rounding_of_degrees_of_freedom_on_device_changes_no_interval():
    df = torch.tensor([1.0, 4.0, 19.0], dtype=torch.float64)
    for rounded in (df * (1 - 1e-15), df * (1 + 1e-15)):
        assert torch.equal(_t_scales(rounded, 30, 50, 0), _t_scales(df, 30, 50, 0))


@pytest.mark.parametrize(("rows", "dims", "k"), [(3, 40, 1), (3, 40, 3), (9, 5, 3)])
def test_direct_bias_on_device_waits_only_for_gradients(rows, dims, k, generator):
    t = torch.randn(2, 6, dims, generator=generator, dtype=torch.float64)
    groups = torch.randn(2, 2, rows, dims, generator=generator, dtype=torch.float64)
    groups[1] = 0  # no direction
    with Device() as device:
        on_device = t.to(DEVICE), groups.to(DEVICE)
        device.waits.clear()
        result = functional.direct_bias(*on_device, n_components=k)
        assert device.waits == []
        assert_same(result.cpu(), functional.direct_bias(t, groups, n_components=k), 1e-12)
        assert result.isnan().tolist() == [False, True]
        functional.direct_bias(on_device[0], on_device[1].requires_grad_(), n_components=k)
        assert device.waits


@pytest.mark.parametrize("gap", [1e-1, 1e-5, 1e-9, 1e-12])
def test_axes_by_powers_are_as_exact_as_decomposition(gap, generator):
    left, right = (torch.linalg.qr(torch.randn(n, 8, generator=generator, dtype=torch.float64))[0] for n in (20, 30))
    singular = torch.tensor([1, 1 - gap, 0.5, 0.5 - gap, 1e-3, 1e-6, 1e-12, 0], dtype=torch.float64)
    for matrix in ((left * singular) @ right.mT, (left * singular) @ right[:8, :8].mT):
        for k in (1, 2, 3, 5):
            lengths, axes = _first_axes(matrix, k)
            _, expected, decomposed = torch.linalg.svd(matrix, full_matrices=False)
            assert torch.allclose(lengths, expected[:k], 1e-12, 0)
            error = (axes.mT @ axes - decomposed[:k].mT @ decomposed[:k]).abs().max()
            assert error < 1e-14 / (gap if k % 2 else 1e-6)


def test_model_sent_to_its_device_keeps_its_table():
    with Device():
        model = WordEmbeddingModel.from_tensor(torch.eye(3), ["a", "b", "c"]).to(DEVICE)
        assert model.to(DEVICE).vectors is model.vectors and model.vectors.device == PLACE


def test_fake_device_raises_where_gpu_raises(generator):
    with Device():
        x = torch.rand(3).to(DEVICE)
        for mixed in (lambda: x + torch.ones(3), lambda: x[torch.arange(3)], lambda: torch.cat([x, torch.ones(1)])):
            with pytest.raises(RuntimeError, match="on the CPU"):
                mixed()
        with pytest.raises(RuntimeError, match="multiplies no matrices of torch.int64"):
            torch.ones(2, 2, dtype=torch.int64).to(DEVICE) @ torch.ones(2, 2, dtype=torch.int64).to(DEVICE)
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(3, device=DEVICE, generator=generator)
        assert torch.equal((x + torch.tensor(1.0)).cpu(), x.cpu() + 1)  # a scalar is passed as a kernel argument


@pytest.mark.parametrize(
    "compare", [lambda x: x == pytest.approx(1.0), lambda x: [x] == pytest.approx([1.0]), lambda x: pytest.approx(x)]
)
def test_approx_of_tensor_on_device_is_refused(compare):
    compare(torch.ones(()))
    with (
        Device(),
        pytest.raises(TypeError, match="pytest.approx: got a tensor on meta:0, wanted numbers; write"),
    ):
        compare(torch.ones(()).to(DEVICE))


def test_fake_device_computes_as_cuda_does(generator):
    cpu = torch.rand(5000, generator=generator, dtype=torch.float64)
    nan = torch.tensor([1.0, -torch.nan, torch.inf, torch.nan, -torch.inf, -1.0, -0.0, 0.0])
    with Device() as device:
        x, y = cpu.to(DEVICE), nan.to(DEVICE)
        assert torch.equal((x / 3).cpu(), cpu * (1 / 3)) and not torch.equal((x / 3).cpu(), cpu / 3)
        assert torch.equal((x / x.new_tensor(3)).cpu(), cpu / 3)
        assert torch.equal(x.mean().cpu(), cpu.sum() * (1 / 5000))
        assert y.argsort(stable=True).tolist() == [1, 4, 5, 6, 7, 0, 2, 3]
        assert y.sort(descending=True).indices.tolist()[:2] == [3, 2]
        assert device.unordered == []
        zeros, index = torch.zeros(1, dtype=torch.float64, device=DEVICE), torch.zeros_like(x, dtype=torch.int64)
        sums = [
            lambda: zeros.scatter_add(0, index, x),
            lambda: zeros.index_add(0, index, x),
            lambda: x.cumsum(0),
            lambda: (x + 0.5).cumprod(0),
        ]
        for add in sums:
            assert len({tuple(add().tolist()) for _ in range(20)}) > 1
        assert len(device.unordered) == 20 * len(sums)
        assert x.device == PLACE != DEVICE and x.to(DEVICE) is x and torch.ones(1, device=DEVICE).device == PLACE


@pytest.mark.parametrize(
    "look_up",
    [
        lambda x, index: x.gather(0, index),
        lambda x, index: x.index_select(0, index),
        lambda x, index: x[index],
        lambda x, index: x.scatter_add(0, index, x),
        lambda x, index: x.index_add(0, index, x),
        lambda x, index: x.take(index),
        lambda x, index: torch.nn.functional.embedding(index, x[:, None]),
    ],
)
def test_fake_device_ends_test_at_index_out_of_range(look_up):
    with Device(), pytest.raises(DeviceAssert):
        try:
            look_up(torch.ones(3).to(DEVICE), torch.full((3,), 7).to(DEVICE))
        except Exception:
            pytest.fail("a product could catch this")


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum()),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: x.long().bincount(),
        lambda x: x.repeat_interleave(x.long()),
        lambda x: x.masked_select(x > 0),
        lambda x: torch.tensor([1.0, 2.0], device=x.device),
        lambda x: x.new_tensor([1.0]),
        lambda x: x.index_put((x > 0,), x),
        lambda x: torch.equal(x, x),
        lambda x: torch.linalg.inv(torch.diag(x)),
        lambda x: torch.linalg.svd(torch.diag(x)),
        lambda x: x.copy_(torch.ones(3)),
        lambda x: x.__setitem__(0, 2.0),
        lambda x: x.__setitem__(x.long(), 2.0),
    ],
)
def test_fake_device_records_synchronizing_operators(wait):
    with Device() as device:
        x = torch.ones(3).to(DEVICE)
        device.waits.clear()
        wait(x)
        assert device.waits


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.index_put((x > 0,), x.new_zeros(())),
        lambda x: x.__setitem__(slice(1), 2.0),
        lambda x: x.__setitem__(x > 0, 2.0),
        lambda x: x.masked_fill(x > 0, 0.0).cumsum(0),
        lambda x: torch.arange(3, device=x.device)[x.long() - 1],
        lambda x: x.repeat_interleave(x.long(), output_size=3),
        lambda x: torch.ones(3).to(x.device, non_blocking=True) + x.to(torch.float64),
    ],
)
def test_fake_device_records_no_wait_for_other_operators(work):
    with Device() as device:
        x = torch.ones(3).to(DEVICE)
        device.waits.clear()
        work(x)
        assert not device.waits


@pytest.mark.full
@rows({name: case for name, case in (METRICS | FUNCTIONS).items() if case.not_finite not in ("raises", "no floats")})
@pytest.mark.filterwarnings("ignore:samples")
def test_nan_with_sign_bit_on_device_equals_nan(case: MetricCase | FunctionCase, generator):
    is_metric = isinstance(case, MetricCase)
    arguments = case.inputs(generator, N if is_metric else (9,))

    def call(device: torch.device, arguments: tuple) -> list[torch.Tensor]:
        if not is_metric:
            return case.call(*on(device, arguments))
        metric = case.make().to(device)
        metric.update(*on(device, arguments))
        return tree_leaves(metric.compute())

    pairs = zip(*(with_nonfinite_argument(case, arguments, nan) for nan in (torch.nan, -torch.nan)), strict=True)
    for (index, policy, expected), (*_, signed) in pairs:
        if policy != "raises":
            with Device():
                results = to_cpu(call(DEVICE, signed))
            assert_same(results, call(torch.device("cpu"), expected), max(case.rtol, 1e-12), f"argument {index}")


def test_internal_sorts_of_nan_with_sign_bit_on_device_put_it_last(generator):
    x = torch.rand(50, 40, generator=generator, dtype=torch.float64)
    x[::4, ::3] = -torch.nan
    for function in (
        lambda x: equal_tailed_interval(x, 0.9),
        lambda x: arrays.TWINS["sort"](x),
    ):
        with Device():
            results = to_cpu(function(x.to(DEVICE)))
        assert_same(results, function(x), 1e-12)
