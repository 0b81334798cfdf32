"""Results do not depend on global state of torch that training loops change: autocast, the default dtype, the default
device and deterministic algorithms."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from cases import FUNCTIONS, METRICS, FunctionCase, MetricCase
from syntax import trees
from test_conformance import N, assert_same, on, rows
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tensormetrics.retrieval import TorchKNN

COMMANDS = ("_cli",)  # it runs in a separate process
INFERRING_FACTORIES = {"arange", "full", "randint", "randperm", "tensor"}  # infer their dtype from Python numbers
FACTORIES = INFERRING_FACTORIES | {"empty", "eye", "linspace", "ones", "rand", "randn", "zeros"}


@contextmanager
def changed_global_state(device: torch.device) -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float16)
    try:
        # Tensors made without an explicit device are on meta, where they have no values.
        with torch.device("meta"), torch.autocast(device.type, dtype=torch.bfloat16):
            yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)


def to_float32(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert floating tensors to float32, since autocast does not change float64."""
    return tuple(t.float() if isinstance(t, Tensor) and t.is_floating_point() else t for t in tensors)


def assert_unchanged(actual: Any, expected: Any) -> None:
    assert_same(actual, expected)
    dtypes_and_devices = [[(leaf.dtype, leaf.device) for leaf in tree_leaves(result)] for result in (actual, expected)]
    assert dtypes_and_devices[0] == dtypes_and_devices[1]


@rows(METRICS)
def test_metric_in_changed_global_state_is_unchanged(case: MetricCase, generator, device):
    inputs = to_float32(on(device, case.inputs(generator, N)))
    reference, metric = case.make().to(device), case.make().to(device)
    reference.update(*inputs)
    with changed_global_state(device):
        metric.update(*inputs)
        result = metric.compute()
    assert_unchanged(result, reference.compute())


@rows(FUNCTIONS)
def test_function_in_changed_global_state_is_unchanged(case: FunctionCase, generator, device):
    inputs = to_float32(on(device, case.inputs(generator, (4,))))
    expected = case.call(*inputs)
    with changed_global_state(device):
        result = case.call(*inputs)
    assert_unchanged(result, expected)


def test_int8_search_in_changed_global_state_is_unchanged(device):
    rows = torch.randn(2500, 64, generator=torch.Generator().manual_seed(0)).to(device)
    expected = TorchKNN()(rows, 10, rows, True)
    with changed_global_state(device):
        result = TorchKNN()(rows, 10, rows, True)
    assert_unchanged(result, expected)


def calls_without_device_or_dtype(tree: ast.Module) -> list[str]:
    """Return the calls that create tensors on the default device or of the default dtype, except states of modules."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [(call, call.func) for call in calls if isinstance(call.func, ast.Attribute)]
    states = [
        call for call, function in calls if function.attr in ("add_state", "add_rows", "register_buffer", "read_scores")
    ]
    state_nodes = {id(node) for call in states for node in ast.walk(call)}
    unnamed_calls = []
    for call, function in calls:
        named = {keyword.arg for keyword in call.keywords}
        if ast.unparse(function.value) != "torch" or function.attr not in FACTORIES or id(call) in state_nodes:
            continue
        has_inferred_dtype = function.attr in INFERRING_FACTORIES and not (
            function.attr == "full" and "torch." in ast.unparse(call.args[1])
        )
        if "device" not in named or not (has_inferred_dtype or "dtype" in named):
            unnamed_calls.append(ast.unparse(call))
    return unnamed_calls


def test_new_tensors_have_explicit_device_and_dtype():
    modules = {path: tree for path, tree in trees().items() if path.parts[0] not in COMMANDS}
    calls = {path: calls_without_device_or_dtype(tree) for path, tree in modules.items()}
    assert {path: found for path, found in calls.items() if found} == {}
