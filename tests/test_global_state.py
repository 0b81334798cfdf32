"""Training loops change torch for the whole process: autocast, the default dtype, the default device, deterministic
algorithms. Values, their dtype and their device stay those of the input."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import FUNCTIONS, METRICS, FunctionCase, MetricCase
from test_conformance import N, assert_same, on, rows
from torch import Tensor
from torch.utils._pytree import tree_leaves

import tensormetrics
from tensormetrics.retrieval import TorchKNN

PACKAGE = Path(tensormetrics.__file__).parent
COMMANDS = "_cli", "_demo.py", "_gpu_checks.py"  # their process is their own
NUMBERED = {"arange", "full", "randint", "randperm", "tensor"}  # take their dtype from numbers
FACTORIES = NUMBERED | {"empty", "eye", "linspace", "ones", "rand", "randn", "zeros"}


@contextmanager
def changed(device: torch.device) -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float16)
    try:
        # What is made without a device is on one that computes nothing.
        with torch.device("meta"), torch.autocast(device.type, dtype=torch.bfloat16):
            yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)


def single(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """Autocast leaves float64 alone."""
    return tuple(t.float() if isinstance(t, Tensor) and t.is_floating_point() else t for t in tensors)


def assert_unchanged(found: Any, wanted: Any) -> None:
    assert_same(found, wanted)
    described = [[(leaf.dtype, leaf.device) for leaf in tree_leaves(each)] for each in (found, wanted)]
    assert described[0] == described[1]


@rows(METRICS)
def test_metrics(case: MetricCase, generator, device):
    inputs = single(on(device, case.inputs(generator, N)))
    plain, metric = case.make().to(device), case.make().to(device)
    plain.update(*inputs)
    with changed(device):
        metric.update(*inputs)
        found = metric.compute()
    assert_unchanged(found, plain.compute())


@rows(FUNCTIONS)
def test_functions(case: FunctionCase, generator, device):
    inputs = single(on(device, case.inputs(generator, (4,))))
    wanted = case.call(*inputs)
    with changed(device):
        found = case.call(*inputs)
    assert_unchanged(found, wanted)


def test_a_search_by_bytes(device):
    rows = torch.randn(2500, 64, generator=torch.Generator().manual_seed(0)).to(device)
    wanted = TorchKNN()(rows, 10, rows, True)
    with changed(device):
        found = TorchKNN()(rows, 10, rows, True)
    assert_unchanged(found, wanted)


def unnamed(source: str) -> list[str]:
    """Calls that make tensors of the default device or dtype; states of modules may be of both."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    calls = [(call, call.func) for call in calls if isinstance(call.func, ast.Attribute)]
    states = [call for call, of in calls if of.attr in ("add_state", "add_rows", "register_buffer", "read_scores")]
    inside = {id(node) for call in states for node in ast.walk(call)}
    found = []
    for call, of in calls:
        named = {keyword.arg for keyword in call.keywords}
        if ast.unparse(of.value) != "torch" or of.attr not in FACTORIES or id(call) in inside:
            continue
        numbered = of.attr in NUMBERED and not (of.attr == "full" and "torch." in ast.unparse(call.args[1]))
        if "device" not in named or not (numbered or "dtype" in named):
            found.append(ast.unparse(call))
    return found


@pytest.mark.parametrize("path", sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")), ids=str)
def test_what_is_made_names_its_device_and_dtype(path):
    assert path.parts[0] in COMMANDS or unnamed((PACKAGE / path).read_text()) == []


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("torch.zeros(3)", 1),
        ("torch.zeros(3, device=x.device)", 1),
        ("torch.zeros(3, dtype=x.dtype, device=x.device)", 0),
        ("torch.arange(3)", 1),
        ("torch.full((3,), torch.inf, device=x.device)", 1),
        ("torch.full((3,), -1, device=x.device) + x.new_zeros(3)", 0),
        ("self.add_state('sum', torch.zeros(3), 'sum')", 0),
    ],
)
def test_the_rule_itself(source, number):
    assert len(unnamed(source)) == number
