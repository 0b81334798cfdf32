"""What every metric and every tensor function has in common, tested from the rows of cases.py."""

import copy
import functools
import inspect
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, get_origin

import numpy as np
import pytest
import torch
import torchmetrics
from cases import FUNCTIONS, METRICS, ROWLESS, FunctionCase, LeftOut, MetricCase
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torchmetrics import MetricCollection
from torchmetrics.utilities.data import dim_zero_sum
from waiting import no_waiting

import tensormetrics
from tensormetrics._metric import Metric, NoDataError

N = 60


def rows(table: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("case", table.values(), ids=table.keys())


def public_names() -> Iterator[tuple[str, Any]]:
    for domain in tensormetrics._DOMAINS:
        module = import_module(f"tensormetrics.{domain}")
        for name in module.__all__:
            yield f"{domain}.{name}", getattr(module, name)


def assert_same(a: Any, b: Any, rtol: float = 0.0, where: str = "") -> None:
    """Equal bit for bit, or as nearly as `rtol` allows; NaN equals NaN."""
    a, b = tree_leaves(a), tree_leaves(b)
    assert len(a) == len(b), where
    for number, (x, y) in enumerate(zip(a, b, strict=True)):
        torch.testing.assert_close(
            x, y, rtol=rtol, atol=rtol, equal_nan=True, msg=lambda text, number=number: f"{where} leaf {number}: {text}"
        )


def same(a: Any, b: Any) -> bool:
    try:
        assert_same(a, b)
    except AssertionError:
        return False
    return True


def on(device: torch.device, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(t.to(device) if isinstance(t, Tensor) else t for t in tensors)


@pytest.fixture
def fed(case: MetricCase, generator: torch.Generator, device: torch.device) -> tuple[Metric, tuple[Tensor, ...]]:
    inputs = on(device, case.inputs(generator, N))
    metric = case.make().to(device)
    metric.update(*inputs)
    return metric, inputs


@pytest.mark.lists
def test_every_public_metric_has_a_row():
    classes = {name: value for name, value in public_names() if inspect.isclass(value) and not get_origin(value)}
    metrics = {name: value for name, value in classes.items() if issubclass(value, Metric)}
    bases = {base for metric in metrics.values() for base in metric.__mro__[1:]}  # for others to derive from
    wanted = {name for name, metric in metrics.items() if metric not in bases}
    assert wanted - METRICS.keys() == set(), "write a row in METRICS of a file in tests/cases/"
    assert METRICS.keys() - wanted == set(), "a public class derives from it, or it is not public: remove its row"


@pytest.mark.lists
def test_every_public_tensor_function_has_a_row():
    functions = {name for name, value in public_names() if inspect.isfunction(value)}
    tensors = {
        name for name, value in public_names() if name in functions and "Tensor" in str(inspect.signature(value))
    }
    assert tensors - FUNCTIONS.keys() - ROWLESS.keys() == set(), (
        "write a row in FUNCTIONS of tests/cases/, or in ROWLESS why not"
    )
    assert ROWLESS.keys() - tensors == set() and ROWLESS.keys() & FUNCTIONS.keys() == set()


@rows(METRICS)
def test_oracle(case, fed):
    metric, inputs = fed
    values = [float(leaf) for leaf in tree_leaves(metric.compute())]
    expected = case.oracle(*(t.cpu().double().numpy() if t.is_floating_point() else t.cpu().numpy() for t in inputs))
    np.testing.assert_allclose(values, expected, rtol=case.rtol)


@rows(METRICS)
def test_results_are_on_the_device_and_in_float64(case, fed, device):
    for leaf in tree_leaves(fed[0].compute()):
        assert leaf.device.type == device.type and leaf.dtype == torch.float64


@rows(METRICS)
def test_batches_equal_one_update(case, fed, device):
    metric, inputs = fed
    parts = case.make().to(device)
    for batch in zip(*(t.split([1, 7, 0, 30, 22]) for t in inputs), strict=True):  # one of them empty
        parts.update(*batch)
    assert_same(parts.compute(), metric.compute())


@rows(METRICS)
def test_two_halves_merged_equal_one(case, fed, device):
    metric, inputs = fed
    first, second = case.make().to(device), case.make().to(device)
    first.update(*(t[:25] for t in inputs))
    second.update(*(t[25:] for t in inputs))
    first.compute()  # a cached value must not survive the merge
    first.merge_state(second)
    assert_same(first.compute(), metric.compute())


@rows(METRICS)
def test_only_empty_updates(case, fed, device):
    metric = case.make().to(device)
    metric.update(*(t[:0] for t in fed[1]))
    empty, full = tree_leaves(metric.compute()), tree_leaves(fed[0].compute())
    if case.has_data_dependent_keys:
        assert all(leaf.isnan() for leaf in empty)
        return
    assert [leaf.shape for leaf in empty] == [leaf.shape for leaf in full]
    assert not same(empty, full)


def assert_has_no_data(metric: Metric) -> None:
    if metric.nan_without_data:
        values = [value for key, value in metric.compute().items() if not key.endswith("]")]  # nor of chosen labels
        assert values and all(value.isnan() for value in values)
    else:
        with pytest.raises(NoDataError, match="was called before update"):
            metric.compute()


@rows(METRICS)
def test_compute_before_update(case):
    assert_has_no_data(case.make())


@rows(METRICS)
def test_reset_forgets(case, fed, generator, device):
    metric, inputs = fed
    metric.update(*on(device, case.inputs(generator, 9)))
    metric.reset()
    assert_has_no_data(metric)
    metric.update(*inputs)
    fresh = case.make().to(device)
    fresh.update(*inputs)
    assert_same(metric.compute(), fresh.compute())


@rows(METRICS)
def test_forward_is_the_batch_and_accumulates(case, fed, device):
    metric, inputs = fed
    parts = case.make().to(device)
    for batch in zip(*(t.split([20, 40]) for t in inputs), strict=True):
        value = parts(*batch)
        alone = case.make().to(device)
        alone.update(*batch)
        if case.forward_is_compute:
            assert_same(value, alone.compute())
    assert parts.update_count == 2 and same(parts.compute(), metric.compute())


@rows(METRICS)
def test_inference_mode_and_grad(case, fed, device):
    metric, inputs = fed
    mixed = case.make().to(device)
    with torch.inference_mode():
        mixed.update(*(t[:30] for t in inputs))
    mixed.update(*(t[30:].requires_grad_() if t.is_floating_point() else t[30:] for t in inputs))
    assert_same(mixed.compute(), metric.compute())


@rows(METRICS)
def test_non_contiguous_input(case, fed, device):
    metric, inputs = fed
    strided = case.make().to(device)
    strided.update(*(torch.stack([t, t.flip(0)], -1)[..., 0] for t in inputs))
    assert_same(strided.compute(), metric.compute())


@rows(METRICS)
def test_pickle_copy_and_state_dict(case, fed, generator, device):
    metric, inputs = fed
    if not any(inspect.isfunction(value) for value in vars(metric).values()):  # lambdas of a row cannot be pickled
        assert_same(pickle.loads(pickle.dumps(metric)).compute(), metric.compute())
    twin = copy.deepcopy(metric)
    twin.update(*on(device, case.inputs(generator, 5)))
    assert not same(twin.compute(), metric.compute())


def saved(metric: Metric) -> dict[str, Any]:
    metric.persistent(True)
    return metric.state_dict()


@rows(METRICS)
def test_a_restored_metric_computes(case, fed, device):
    metric, _ = fed
    alone = case.make().to(device)
    alone.load_state_dict(saved(metric))
    assert alone.update_count == 1
    assert_same(alone.compute(), metric.compute())
    parent = torch.nn.ModuleDict({"inner": case.make().to(device)})
    parent.load_state_dict(torch.nn.ModuleDict({"inner": metric}).state_dict())
    assert_same(parent["inner"].compute(), metric.compute())


@rows(METRICS)
def test_an_empty_state_restored_has_no_data(case, fed, device):
    metric, _ = fed
    metric.compute()
    metric.load_state_dict(saved(case.make().to(device)))
    assert_has_no_data(metric)


@rows(METRICS)
def test_a_used_metric_is_loaded_into_and_goes_on(case, fed, generator, device):
    metric, inputs = fed
    used = case.make().to(device)
    used.update(*on(device, case.inputs(generator, 2 * N)))
    used.compute()
    first = case.make().to(device)
    first.update(*(t[:20] for t in inputs))
    used.load_state_dict(saved(first))
    used.update(*(t[20:] for t in inputs))
    assert_same(used.compute(), metric.compute())


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs calls all at once, each in a thread of its own; others get their turn before a state is written."""

    def slowly(self: Metric, name: str, value: Any) -> None:
        if name in self.__dict__.get("_defaults", ()):
            time.sleep(1e-5)
        torchmetrics.Metric.__setattr__(self, name, value)

    def run(*calls: Callable[[], Any]) -> None:
        monkeypatch.setattr(Metric, "__setattr__", slowly, raising=False)
        with ThreadPoolExecutor(len(calls)) as pool:
            for done in [pool.submit(call) for call in calls]:
                done.result(timeout=60)

    return run


def in_turn(call: Callable, batches: list[tuple[Tensor, ...]]) -> Callable[[], None]:
    return lambda: [call(*batch) for batch in batches] and None


def unordered(metric: Metric) -> list[Tensor]:
    """The state: sums, and the rows of all states of one length side by side, sorted."""
    beside: dict[int, list[Tensor]] = {}
    sums = []
    for name, state in metric.metric_state.items():
        if metric._reductions[name] is dim_zero_sum:
            sums.append(state.double())
        elif state.numel():
            beside.setdefault(len(state), []).append(state.double().reshape(len(state), -1))
    return [*sums, *(torch.cat(states, 1).unique(dim=0, return_counts=True) for states in beside.values())]


@rows(METRICS)
def test_threads_update_one_metric(case, generator, device, in_threads):
    inputs = on(device, case.inputs(generator, 96))
    batches = list(zip(*(t.split(1) for t in inputs), strict=True))
    metric, alone = case.make().to(device), case.make().to(device)
    in_threads(*(in_turn((metric.update, metric)[n % 2], batches[n::8]) for n in range(8)))
    alone.update(*inputs)
    assert metric.update_count == 96
    assert_same(unordered(metric), unordered(alone), 1e-12)


@rows(METRICS)
def test_threads_do_everything_with_two_metrics(case, fed, generator, device, in_threads):
    """They are merged into each other meanwhile, which would lock two threads that hold one lock each for ever."""
    metric, inputs = fed
    other = case.make().to(device)
    other.update(*inputs)
    batches = list(zip(*(t.split(1) for t in on(device, case.inputs(generator, 6))), strict=True))

    def often(call: Callable[[], Any]) -> Callable[[], None]:
        return lambda: [call() for _ in range(3)] and None

    def computed_unless_reset(which: Metric) -> None:
        try:
            which.compute()
        except NoDataError:
            pass

    in_threads(
        in_turn(metric.update, batches),
        in_turn(metric, batches),
        in_turn(other.update, batches),
        lambda: metric.merge_state(other),
        lambda: other.merge_state(metric),
        lambda: computed_unless_reset(metric),
        often(lambda: pickle.dumps(metric.metric_state)),
        often(lambda: copy.deepcopy(other)),
        other.reset,
        functools.partial(metric.load_state_dict, saved(copy.deepcopy(other))),
    )
    metric.reset()
    metric.update(*inputs)
    fresh = case.make().to(device)
    fresh.update(*inputs)
    assert_same(metric.compute(), fresh.compute())


@rows(METRICS)
def test_what_writes_several_states_holds_the_lock(case, fed, monkeypatch):
    """Also where a subclass overrides it: another thread would find the states of two moments."""
    metric, _ = fed
    held, state, kept = [], saved(metric), torch.nn.Module.__setattr__

    def noted(self: torch.nn.Module, name: str, value: Any) -> None:
        if name in vars(self).get("_defaults", ()):  # of the metric, or of a part of it
            held.append(metric._lock._is_owned())
        kept(self, name, value)

    monkeypatch.setattr(Metric, "__setattr__", noted)
    metric.load_state_dict(state)
    metric.to(metric.device)
    metric.reset()
    assert held and all(held)


@rows(METRICS)
def test_metric_collection(case, fed, device):
    metric, inputs = fed
    collection = MetricCollection({"a": case.make(), "b": case.make()}).to(device)
    for batch in zip(*(t.split([20, 40]) for t in inputs), strict=True):
        collection.update(*batch)
    values = tree_leaves(collection.compute())
    assert_same(values, [*tree_leaves(metric.compute())] * 2)
    collection.reset()
    collection(*inputs)
    assert_same(tree_leaves(collection.compute()), values)


@rows(METRICS)
def test_failed_update_and_forward_change_nothing(case, fed, device):
    metric, inputs = fed
    value = metric.compute()
    for bad in case.bad:
        for call in (metric.update, metric):
            with pytest.raises(ValueError):
                call(*on(device, bad))
    assert metric.update_count == 1 and metric.compute() is value
    metric.update(*(t[:0] for t in inputs))
    assert_same(metric.compute(), value)


@rows({name: case for name, case in METRICS.items() if not case.synchronizes})
def test_update_does_not_wait_for_the_device(case, generator, device):
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    metric, inputs = case.make().to(device), on(device, case.inputs(generator, N))
    metric.update(*inputs)
    with no_waiting():
        metric.update(*inputs)


@rows(FUNCTIONS)
def test_batch_equals_loop(case: FunctionCase, generator, device):
    arguments = on(device, case.inputs(generator, (2, 3)))
    results = case.call(*arguments)
    for i in np.ndindex(2, 3):
        single = case.call(*(a[i] for a in arguments))
        assert_same([r[i] for r in results], single, case.rtol)


@rows(FUNCTIONS)
def test_no_leading_dimension_and_an_empty_one(case, generator, device):
    arguments = on(device, case.inputs(generator, (4,)))
    empty = case.call(*(a[:0] for a in arguments))
    assert [tuple(r.shape) for r in empty] == [(0, *r.shape[1:]) for r in case.call(*arguments)]


@rows({name: case for name, case in FUNCTIONS.items() if case.pad})
@pytest.mark.parametrize("garbage", [0.0, 1e6, -1e6, float("nan"), float("inf"), -float("inf")])
def test_padding_never_matters(case, garbage, generator, device):
    arguments = on(device, case.inputs(generator, (5,)))
    padded = case.call(*on(device, case.pad(garbage, *arguments)))
    assert_same(case.unpad(padded, *arguments), case.call(*arguments), case.rtol)


@rows(FUNCTIONS)
def test_functions_read_strided_input(case, generator, device):
    arguments = on(device, case.inputs(generator, (4,)))
    strided = [torch.stack([a, a.flip(0)], -1)[..., 0] for a in arguments]
    assert_same(case.call(*strided), case.call(*arguments), case.rtol)


@rows({name: case for name, case in FUNCTIONS.items() if case.compiles})
def test_compiles_without_a_graph_break(case, generator, device):
    arguments = on(device, case.inputs(generator, (4,)))
    torch.compiler.reset()  # rows share code, and one piece of code is compiled for a few rows only
    compiled = torch.compile(case.call, fullgraph=True, backend="aot_eager")
    assert_same(compiled(*arguments), case.call(*arguments), case.rtol)


def test_every_row_says_what_it_does_with_values_that_are_not_finite():
    assert [name for name, case in (METRICS | FUNCTIONS).items() if case.not_finite is None] == []


def spoilt(case: MetricCase | FunctionCase, arguments: tuple[Tensor, ...], value: float) -> Iterator[tuple]:
    """(place, what the row says of it, the arguments with the value at the beginning of the first six items there)."""
    places = [place for place, argument in enumerate(arguments) if argument.is_floating_point()]
    assert (case.not_finite == "no floats") == (not places)
    for place in places:
        argument = arguments[place].clone()
        argument.view(len(argument), -1)[:6, 0] = value
        policy = case.not_finite(place, value) if callable(case.not_finite) else case.not_finite
        yield place, policy, (*arguments[:place], argument, *arguments[place + 1 :])


not_finite = pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])


class Exported:
    """An array of another library, which shares its memory by DLPack."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def read_only(tensor: Tensor) -> np.ndarray:
    array = tensor.numpy().copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("kind", [Tensor.numpy, read_only, Exported], ids=["numpy", "read-only", "DLPack"])
@rows(METRICS)
def test_update_takes_arrays(kind, case, generator):
    inputs = case.inputs(generator, N)
    expected, metric = case.make(), case.make()
    expected.update(*inputs)
    metric.update(*(kind(x) if isinstance(x, Tensor) and not x.is_sparse else x for x in inputs))
    assert_same(metric.compute(), expected.compute())


class WithTensorMethods(np.ndarray):
    """An array with the two methods of tensors that rows of the table call on their arguments."""

    movedim = np.moveaxis

    def double(self) -> np.ndarray:
        return self.astype(np.float64)


@rows(FUNCTIONS)
def test_functions_take_arrays(case, generator):
    arguments = case.inputs(generator, (3,))
    results = case.call(*(read_only(x).view(WithTensorMethods) for x in arguments))
    assert all(isinstance(result, Tensor) for result in results)
    assert_same(results, case.call(*arguments))


@rows(METRICS)
def test_a_refilled_buffer_changes_nothing_that_was_fed(case, generator):
    """Loaders hand out one array again and again; the state must not be its contents of later."""
    batches, expected, metric = [case.inputs(generator, N) for _ in range(2)], case.make(), case.make()
    is_array = [isinstance(x, Tensor) and not x.is_sparse for x in batches[0]]
    buffers = [x.numpy().copy() if array else x for x, array in zip(batches[0], is_array, strict=True)]
    for batch in batches:
        expected.update(*batch)
        for buffer, x, array in zip(buffers, batch, is_array, strict=True):
            if array:
                buffer[...] = x.numpy()
        metric.update(*buffers)
    assert_same(metric.compute(), expected.compute())


@not_finite
@rows(METRICS)
def test_metrics_of_values_that_are_not_finite(case, value, fed, device):
    for place, policy, inputs in spoilt(case, fed[1], value):
        metric = case.make().to(device)
        if policy == "raises":
            with pytest.raises(ValueError):
                metric.update(*inputs)
                metric.compute()
            continue
        metric.update(*inputs)
        found = tree_leaves(metric.compute())
        if policy == "nan":
            assert_same_or_not_finite(found, tree_leaves(fed[0].compute()), 0.0, f"argument {place}")
            continue
        assert isinstance(policy, LeftOut) and policy.reason
        if policy.expected is None:
            without = case.make().to(device)
            without.update(*(t[6:] for t in inputs))
        assert_same(found, without.compute() if policy.expected is None else policy.expected(*inputs), 1e-12)


@not_finite
@rows(FUNCTIONS)
@pytest.mark.filterwarnings("ignore:samples")  # says how many are left out
def test_functions_of_values_that_are_not_finite(case, value, generator, device):
    arguments = on(device, case.inputs(generator, (9,)))
    before = case.call(*arguments)
    for place, policy, inputs in spoilt(case, arguments, value):
        where = f"argument {place}"
        if policy == "raises":
            with pytest.raises(ValueError):
                case.call(*inputs)
            continue
        found = case.call(*inputs)
        assert_same([r[6:] for r in found], [r[6:] for r in before], case.rtol, where)
        if policy == "nan":
            assert_same_or_not_finite([r[:6] for r in found], [r[:6] for r in before], case.rtol, where)
            continue
        assert isinstance(policy, LeftOut) and policy.reason
        if policy.expected is not None:
            first = policy.expected(*(t[:6] for t in inputs))
            assert_same([r[:6] for r in found], first, case.rtol, where)


def assert_same_or_not_finite(found: list[Tensor], before: list[Tensor], rtol: float, where: str) -> None:
    """Floating results that are finite are as they were, and some are not finite."""
    pairs = [pair for pair in zip(found, before, strict=True) if pair[0].is_floating_point()]
    assert any(not x.isfinite().all() for x, _ in pairs), where
    for x, y in pairs:
        assert_same(x[x.isfinite()], y[x.isfinite()], rtol, where)
