"""Properties that all metrics and all tensor functions have in common, tested for each row of tests/cases/."""

import copy
import functools
import inspect
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_origin

import numpy as np
import pytest
import torch
import torchmetrics
from cases import FUNCTIONS, METRICS, PUBLIC, FunctionCase, LeftOut, MetricCase
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torchmetrics import MetricCollection
from torchmetrics.utilities.data import dim_zero_sum
from waiting import no_waiting

from tensormetrics.core.metric.base import Metric, NoDataError
from tensormetrics.core.metric.distributed import constructor_options
from tensormetrics.uncertainty import Uncertain

N = 60


def rows(table: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("case", table.values(), ids=table.keys())


def assert_same(a: Any, b: Any, rtol: float = 0.0, where: str = "") -> None:
    """Check that results are equal bit by bit, or within `rtol`; NaN equals NaN."""
    a, b = tree_leaves(a), tree_leaves(b)
    assert len(a) == len(b), f"{where}: got {len(a)} values, wanted {len(b)}"
    for index, (x, y) in enumerate(zip(a, b, strict=True)):

        def message(text: str, index: int = index, x: Any = x, y: Any = y) -> str:
            return f"{where} leaf {index}: got {x}, wanted {y}\n{text}"

        torch.testing.assert_close(x, y, rtol=rtol, atol=rtol, equal_nan=True, msg=message)


def is_same(a: Any, b: Any) -> bool:
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
    classes = {name: value for name, value in PUBLIC.items() if inspect.isclass(value) and not get_origin(value)}
    metrics = {name: value for name, value in classes.items() if issubclass(value, Metric)}
    bases = {base for metric in metrics.values() for base in metric.__mro__[1:]}  # base classes of other metrics
    expected = {name for name, metric in metrics.items() if metric not in bases}
    assert expected - METRICS.keys() == set(), "write a row in METRICS of a file in tests/cases/"
    assert METRICS.keys() - expected == set(), "a public class derives from it, or it is not public: remove its row"


WITHOUT_BATCH = {
    *("posterior.sample_dirichlet", "posterior.sample_log_gamma"),  # another shape gives other draws
    "uncertainty.compare_data_sets",  # its data sets belong together: another leading shape is another posterior
}


def takes_tensors(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(kind in str(parameter.annotation) for parameter in parameters for kind in ("Tensor", "PositiveRanks"))


@pytest.mark.lists
def test_every_public_tensor_function_has_a_row():
    functions = {name: value for name, value in PUBLIC.items() if inspect.isfunction(value)}
    tensors = {name for name, function in functions.items() if takes_tensors(function)}
    assert tensors - FUNCTIONS.keys() == WITHOUT_BATCH, "write a row in FUNCTIONS of tests/cases/"


@rows(METRICS)
def test_metric_compute_equals_oracle(case, fed):
    metric, inputs = fed
    values = [float(leaf) for leaf in tree_leaves(metric.compute())]
    expected = case.oracle(*(t.cpu().double().numpy() if t.is_floating_point() else t.cpu().numpy() for t in inputs))
    np.testing.assert_allclose(values, expected, rtol=case.rtol)


@rows(METRICS)
def test_metric_results_are_float64_on_device(case, fed, device):
    for leaf in tree_leaves(fed[0].compute()):
        assert leaf.device.type == device.type and leaf.dtype == torch.float64


@rows(METRICS)
def test_metric_batches_equal_one_update(case, fed, device):
    metric, inputs = fed
    parts = case.make().to(device)
    for batch in zip(*(t.split([1, 7, 0, 30, 22]) for t in inputs), strict=True):  # one batch is empty
        parts.update(*batch)
    assert_same(parts.compute(), metric.compute())


@rows(METRICS)
def test_merge_state_of_two_parts_equals_one_update(case, fed, device):
    metric, inputs = fed
    first, second = case.make().to(device), case.make().to(device)
    first.update(*(t[:25] for t in inputs))
    second.update(*(t[25:] for t in inputs))
    first.compute()  # a cached value must not survive the merge
    first.merge_state(second)
    assert_same(first.compute(), metric.compute())


@rows(METRICS)
def test_metric_with_only_empty_updates_differs(case, fed, device):
    metric = case.make().to(device)
    metric.update(*(t[:0] for t in fed[1]))
    empty, full = tree_leaves(metric.compute()), tree_leaves(fed[0].compute())
    if case.has_data_dependent_keys:
        assert all(leaf.isnan() for leaf in empty)
        return
    assert [leaf.shape for leaf in empty] == [leaf.shape for leaf in full]
    assert not is_same(empty, full)


def assert_has_no_data(metric: Metric) -> None:
    if metric.nan_without_data:
        values = [
            value for key, value in metric.compute().items() if not key.endswith("]")
        ]  # no keys of selected labels
        assert values and all(value.isnan() for value in values)
    else:
        with pytest.raises(NoDataError, match="was called before update"):
            metric.compute()


@rows(METRICS)
def test_metric_compute_before_update_has_no_data(case):
    assert_has_no_data(case.make())


@rows(METRICS)
def test_metric_reset_clears_state(case, fed, generator, device):
    metric, inputs = fed
    metric.update(*on(device, case.inputs(generator, 9)))
    metric.reset()
    assert_has_no_data(metric)
    metric.update(*inputs)
    fresh = case.make().to(device)
    fresh.update(*inputs)
    assert_same(metric.compute(), fresh.compute())


@rows(METRICS)
def test_forward_returns_batch_value_and_accumulates(case, fed, device):
    metric, inputs = fed
    parts = case.make().to(device)
    for batch in zip(*(t.split([20, 40]) for t in inputs), strict=True):
        value = parts(*batch)
        single = case.make().to(device)
        single.update(*batch)
        if case.forward_is_compute:
            assert_same(value, single.compute())
    assert parts.update_count == 2 and is_same(parts.compute(), metric.compute())


@rows(METRICS)
def test_update_ignores_inference_mode_and_grad(case, fed, device):
    metric, inputs = fed
    mixed = case.make().to(device)
    with torch.inference_mode():
        mixed.update(*(t[:30] for t in inputs))
    mixed.update(*(t[30:].requires_grad_() if t.is_floating_point() else t[30:] for t in inputs))
    assert_same(mixed.compute(), metric.compute())


@rows(METRICS)
def test_update_with_strided_input_equals_contiguous(case, fed, device):
    metric, inputs = fed
    strided = case.make().to(device)
    strided.update(*(torch.stack([t, t.flip(0)], -1)[..., 0] for t in inputs))
    assert_same(strided.compute(), metric.compute())


@rows(METRICS)
def test_pickled_metric_is_equal_and_copy_independent(case, fed, generator, device):
    metric, inputs = fed
    if not any(inspect.isfunction(value) for value in vars(metric).values()):  # lambdas of a row cannot be pickled
        assert_same(pickle.loads(pickle.dumps(metric)).compute(), metric.compute())
    twin = copy.deepcopy(metric)
    twin.update(*on(device, case.inputs(generator, 7)))
    assert not is_same(twin.compute(), metric.compute())


def state_dict_of(metric: Metric) -> dict[str, Any]:
    metric.persistent(True)
    return metric.state_dict()


@rows(METRICS)
def test_restored_metric_computes_same_value(case, fed, device):
    metric, _ = fed
    restored = case.make().to(device)
    restored.load_state_dict(state_dict_of(metric))
    assert restored.update_count == 1
    assert_same(restored.compute(), metric.compute())
    parent = torch.nn.ModuleDict({"inner": case.make().to(device)})
    parent.load_state_dict(torch.nn.ModuleDict({"inner": metric}).state_dict())
    assert_same(parent["inner"].compute(), metric.compute())


@rows(METRICS)
def test_restored_empty_state_has_no_data(case, fed, device):
    metric, _ = fed
    metric.compute()
    metric.load_state_dict(state_dict_of(case.make().to(device)))
    assert_has_no_data(metric)


@rows(METRICS)
def test_load_state_dict_replaces_state_of_used_metric(case, fed, generator, device):
    metric, inputs = fed
    used = case.make().to(device)
    used.update(*on(device, case.inputs(generator, 2 * N)))
    used.compute()
    first = case.make().to(device)
    first.update(*(t[:20] for t in inputs))
    used.load_state_dict(state_dict_of(first))
    used.update(*(t[20:] for t in inputs))
    assert_same(used.compute(), metric.compute())


@pytest.fixture
def run_in_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a runner of concurrent calls, one thread each, that switches threads before every write of a state."""

    def set_slowly(self: Metric, name: str, value: Any) -> None:
        if name in self.__dict__.get("_defaults", ()):
            time.sleep(1e-5)
        torchmetrics.Metric.__setattr__(self, name, value)

    def run(*calls: Callable[[], Any]) -> None:
        monkeypatch.setattr(Metric, "__setattr__", set_slowly, raising=False)
        with ThreadPoolExecutor(len(calls)) as pool:
            for future in [pool.submit(call) for call in calls]:
                future.result(timeout=60)

    return run


def call_in_turn(call: Callable, batches: list[tuple[Tensor, ...]]) -> Callable[[], None]:
    return lambda: [call(*batch) for batch in batches] and None


def unordered_state(metric: Metric) -> list[Tensor]:
    """Return the state independent of the order of rows: sums, and the sorted joint rows of states of one length."""
    rows_of_length: dict[int, list[Tensor]] = {}
    sums = []
    for name, state in metric.metric_state.items():
        if metric._reductions[name] is dim_zero_sum:
            sums.append(state.double())
        elif state.numel():
            rows_of_length.setdefault(len(state), []).append(state.double().reshape(len(state), -1))
    return [*sums, *(torch.cat(states, 1).unique(dim=0, return_counts=True) for states in rows_of_length.values())]


@rows(METRICS)
def test_update_from_threads_equals_one_update(case, generator, device, run_in_threads):
    inputs = on(device, case.inputs(generator, 24))
    batches = list(zip(*(t.split(1) for t in inputs), strict=True))
    metric, expected = case.make().to(device), case.make().to(device)
    run_in_threads(*(call_in_turn((metric.update, metric)[n % 2], batches[n::8]) for n in range(8)))
    for batch in batches if isinstance(metric, Uncertain) else [inputs]:  # each of which is an item
        expected.update(*batch)
    assert metric.update_count == 24
    assert_same(unordered_state(metric), unordered_state(expected), 1e-12)


@pytest.mark.full
@rows(METRICS)
def test_two_metrics_in_threads_do_not_deadlock(case, fed, generator, device, run_in_threads):
    """Merging the metrics into each other would deadlock two threads that hold one lock each."""
    metric, inputs = fed
    other = case.make().to(device)
    other.update(*inputs)
    batches = list(zip(*(t.split(1) for t in on(device, case.inputs(generator, 6))), strict=True))

    def repeated(call: Callable[[], Any]) -> Callable[[], None]:
        return lambda: [call() for _ in range(3)] and None

    def compute_unless_reset(target: Metric) -> None:
        try:
            target.compute()
        except NoDataError:
            pass

    run_in_threads(
        call_in_turn(metric.update, batches),
        call_in_turn(metric, batches),
        call_in_turn(other.update, batches),
        lambda: metric.merge_state(other),
        lambda: other.merge_state(metric),
        lambda: compute_unless_reset(metric),
        repeated(lambda: pickle.dumps(metric.metric_state)),
        repeated(lambda: copy.deepcopy(other)),
        other.reset,
        functools.partial(metric.load_state_dict, state_dict_of(copy.deepcopy(other))),
    )
    metric.reset()
    metric.update(*inputs)
    fresh = case.make().to(device)
    fresh.update(*inputs)
    assert_same(metric.compute(), fresh.compute())


@rows(METRICS)
def test_writes_of_states_hold_lock(case, fed, monkeypatch):
    """Without the lock another thread could read states of different updates; overrides in subclasses count too."""
    metric, _ = fed
    is_held, state, set_attribute = [], state_dict_of(metric), torch.nn.Module.__setattr__

    def record_lock(self: torch.nn.Module, name: str, value: Any) -> None:
        if name in vars(self).get("_defaults", ()):  # a state of the metric, or of a part of it
            is_held.append(metric._lock._is_owned())
        set_attribute(self, name, value)

    monkeypatch.setattr(Metric, "__setattr__", record_lock)
    metric.load_state_dict(state)
    metric.to(metric.device)
    metric.reset()
    assert is_held and all(is_held)


@rows(METRICS)
def test_metric_collection_equals_single_metrics(case, fed, device):
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
def test_failed_update_leaves_metric_unchanged(case, fed, device):
    metric, inputs = fed
    value = metric.compute()
    for bad in case.bad if device.type == "cpu" else ():  # test_devices.py has those of a GPU, which `compute` finds
        for call in (metric.update, metric):
            with pytest.raises(ValueError):
                call(*on(device, bad))
    assert metric.update_count == 1 and metric.compute() is value
    metric.update(*(t[:0] for t in inputs))
    assert_same(metric.compute(), value)


@rows({name: case for name, case in METRICS.items() if not case.synchronizes})
def test_update_on_gpu_does_not_synchronize(case, generator, device):
    if device.type != "cuda":
        pytest.skip("needs a GPU")
    metric, inputs = case.make().to(device), on(device, case.inputs(generator, N))
    metric.update(*inputs)
    with no_waiting():
        metric.update(*inputs)


@rows(FUNCTIONS)
def test_function_of_batch_equals_loop(case: FunctionCase, generator, device):
    arguments = on(device, case.inputs(generator, (2, 3)))
    results = case.call(*arguments)
    for i in np.ndindex(2, 3):
        single = case.call(*(a[i] for a in arguments))
        assert_same([r[i] for r in results], single, case.rtol)


@rows(FUNCTIONS)
def test_function_of_empty_batch_returns_empty_results(case, generator, device):
    arguments = on(device, case.inputs(generator, (4,)))
    empty = case.call(*(a[:0] for a in arguments))
    assert [tuple(r.shape) for r in empty] == [(0, *r.shape[1:]) for r in case.call(*arguments)]


@rows({name: case for name, case in FUNCTIONS.items() if case.pad})
@pytest.mark.parametrize("garbage", [0.0, 1e6, -1e6, float("nan"), float("inf"), -float("inf")])
def test_function_ignores_values_of_padding(case, garbage, generator, device):
    arguments = on(device, case.inputs(generator, (5,)))
    padded = case.call(*on(device, case.pad(garbage, *arguments)))
    assert_same(case.unpad(padded, *arguments), case.call(*arguments), case.rtol)


@rows(FUNCTIONS)
def test_function_of_strided_input_equals_contiguous(case, generator, device):
    arguments = on(device, case.inputs(generator, (4,)))
    strided = [torch.stack([a, a.flip(0)], -1)[..., 0] for a in arguments]
    assert_same(case.call(*strided), case.call(*arguments), case.rtol)


COMPILING = {name: case for name, case in FUNCTIONS.items() if case.compiles}
BACKENDS = [(case, "eager") for case in COMPILING.values()]
BACKENDS += [pytest.param(case, "aot_eager", marks=pytest.mark.full) for case in COMPILING.values()]


@pytest.mark.parametrize(("case", "backend"), BACKENDS, ids=[*COMPILING, *(f"{name}-aot" for name in COMPILING)])
def test_function_compiles_without_graph_break(case, backend, generator, device):
    arguments = on(device, case.inputs(generator, (4,)))
    torch.compiler.reset()  # rows share code, and torch recompiles the same code only a few times
    compiled = torch.compile(case.call, fullgraph=True, backend=backend)
    assert_same(compiled(*arguments), case.call(*arguments), case.rtol)


def test_every_row_declares_policy_for_nonfinite_values():
    generator = torch.Generator()
    arguments = {name: case.inputs(generator, N) for name, case in METRICS.items()}
    arguments |= {name: case.inputs(generator, (2,)) for name, case in FUNCTIONS.items()}
    floating = {name for name, tensors in arguments.items() if any(x.is_floating_point() for x in tensors)}
    assert {name for name, case in (METRICS | FUNCTIONS).items() if case.not_finite is not None} == floating


def with_nonfinite_argument(
    case: MetricCase | FunctionCase, arguments: tuple[Tensor, ...], value: float
) -> Iterator[tuple]:
    """Yield (index of a floating argument, policy of the row for it, arguments with `value` in its first six items)."""
    indices = [index for index, argument in enumerate(arguments) if argument.is_floating_point()]
    for index in indices:
        argument = arguments[index].clone()
        argument.view(len(argument), -1)[:6, 0] = value
        policy = case.not_finite(index, value) if callable(case.not_finite) else case.not_finite
        yield index, policy, (*arguments[:index], argument, *arguments[index + 1 :])


not_finite = pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])


class Exported:
    """Array of another library that shares its memory by DLPack."""

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
def test_update_with_arrays_equals_tensors(kind, case, generator):
    inputs = case.inputs(generator, N)
    expected, metric = case.make(), case.make()
    expected.update(*inputs)
    metric.update(*(kind(x) if isinstance(x, Tensor) and not x.is_sparse else x for x in inputs))
    assert_same(metric.compute(), expected.compute())


class WithTensorMethods(np.ndarray):
    """Array with the two tensor methods that rows of the table call on their arguments."""

    movedim = np.moveaxis

    def double(self) -> np.ndarray:
        return self.astype(np.float64)


@rows(FUNCTIONS)
def test_function_of_arrays_equals_tensors(case, generator):
    arguments = case.inputs(generator, (3,))
    results = case.call(*(read_only(x).view(WithTensorMethods) for x in arguments))
    assert all(isinstance(result, Tensor) for result in results)
    assert_same(results, case.call(*arguments))


@rows(METRICS)
def test_number_options_accept_numpy_scalars(case):
    """Build the metric again with one option at a time as an integer or a float of NumPy."""
    metric = case.make()
    positional, named = metric._arguments
    bound = inspect.signature(type(metric)).bind(*positional)
    for name, value in constructor_options(metric).items():
        if isinstance(value, bool) or not isinstance(value, int | float) or name in bound.arguments:
            continue
        scalars = (
            (np.int32(value), np.int64(value)) if isinstance(value, int) else (np.float32(value), np.float64(value))
        )
        for scalar in scalars:
            type(metric)(*positional, **{**named, name: scalar})


# Options that take any value of some type, or whose values are checked where they meet the data.
ANY_VALUE = {
    "gains": "tensors or a function, see `update`",
    "ignore": "a tensor or a function, see `update`",
    "device": "torch names a device that it does not know",
    "labels": "any hashable objects are labels",
}
INVALID_VALUES = [object(), "nonsense", [object()], 1.5j]


@rows(METRICS)
def test_options_of_another_type_raise_errors_that_name_them(case):
    metric = case.make()
    positional, named = metric._arguments
    bound = inspect.signature(type(metric)).bind(*positional)
    accepted = []
    for name in constructor_options(metric):
        if name in ANY_VALUE or name in bound.arguments or name == "args":
            continue
        for value in INVALID_VALUES:
            try:
                type(metric)(*positional, **{**named, name: value})
            except (TypeError, ValueError) as error:
                assert name in str(error), f"{name}={value!r}: {error}"
            else:
                accepted.append((name, value))
    assert accepted in ([], [("name", "nonsense")])


@rows(METRICS)
def test_update_copies_buffers_that_are_refilled(case, generator):
    """Data loaders may reuse one array for all batches, so that the state must not alias it."""
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
def test_metric_with_nonfinite_value_follows_policy(case, value, fed, device):
    for index, policy, inputs in with_nonfinite_argument(case, fed[1], value):
        metric = case.make().to(device)
        if policy == "raises":
            with pytest.raises(ValueError):
                metric.update(*inputs)
                metric.compute()
            continue
        metric.update(*inputs)
        results = tree_leaves(metric.compute())
        if policy == "nan":
            assert_same_or_not_finite(results, tree_leaves(fed[0].compute()), 0.0, f"argument {index}")
            continue
        assert isinstance(policy, LeftOut) and policy.reason
        if policy.expected is None:
            without = case.make().to(device)
            without.update(*(t[6:] for t in inputs))
        assert_same(results, without.compute() if policy.expected is None else policy.expected(*inputs), 1e-12)


@not_finite
@rows(FUNCTIONS)
@pytest.mark.filterwarnings("ignore:samples")  # warns how many samples are dropped
def test_function_of_nonfinite_value_follows_policy(case, value, generator, device):
    arguments = on(device, case.inputs(generator, (9,)))
    before = case.call(*arguments)
    for index, policy, inputs in with_nonfinite_argument(case, arguments, value):
        where = f"argument {index}"
        if policy == "raises":
            with pytest.raises(ValueError):
                case.call(*inputs)
            continue
        results = case.call(*inputs)
        assert_same([r[6:] for r in results], [r[6:] for r in before], case.rtol, where)
        if policy == "nan":
            assert_same_or_not_finite([r[:6] for r in results], [r[:6] for r in before], case.rtol, where)
            continue
        assert isinstance(policy, LeftOut) and policy.reason
        if policy.expected is not None:
            first = policy.expected(*(t[:6] for t in inputs))
            assert_same([r[:6] for r in results], first, case.rtol, where)


def assert_same_or_not_finite(results: list[Tensor], before: list[Tensor], rtol: float, where: str) -> None:
    """Check that some floating results are not finite, and that the finite ones are unchanged."""
    pairs = [pair for pair in zip(results, before, strict=True) if pair[0].is_floating_point()]
    assert any(not x.isfinite().all() for x, _ in pairs), where
    for x, y in pairs:
        assert_same(x[x.isfinite()], y[x.isfinite()], rtol, where)
