"""Cached tables are correct whatever mode torch was in when they were first requested."""

import ast

import pytest
import torch
from syntax import trees
from torch._subclasses import FakeTensorMode

from tensormetrics.core.native.device_cache import cached_per_device


@pytest.fixture
def table():
    return cached_per_device(lambda device: torch.arange(3.0, device=device))


def test_fake_tensors_are_not_cached(table):
    with FakeTensorMode():
        assert type(table(torch.empty(0))) is not torch.Tensor
    assert type(table(torch.empty(0))) is torch.Tensor


def test_fake_mode_gets_fake_table_despite_cached_one(table):
    table(torch.empty(0))
    with FakeTensorMode():
        like = torch.empty(0)
        assert table(like).add(like.sum()).shape == table(like).shape


def test_table_is_computed_once_per_device(table):
    assert table(torch.empty(0)) is table(torch.ones(2, 3))


def test_fake_table_of_real_tensor_is_not_cached(table):
    outside = torch.empty(0)
    with FakeTensorMode():
        table(outside)
    assert table(outside).tolist() == [0, 1, 2]


def test_table_made_in_inference_mode_supports_backward(table):
    with torch.inference_mode():
        table(torch.empty(0))
    assert not table(torch.empty(0)).is_inference()
    x = torch.ones(3, requires_grad=True)
    (x * table(x)).sum().backward()
    assert x.grad.tolist() == [0, 1, 2]


def test_functions_cache_tensors_only_per_device():
    """Functions with another cache must not return tensors, except a `cached_property` of an object and closures."""
    for path, tree in trees().items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        closures = {inner for outer in functions for inner in ast.walk(outer) if inner is not outer}
        for node in functions:
            if node not in closures:
                cached = [
                    ast.unparse(decorator) for decorator in node.decorator_list if "cache" in ast.unparse(decorator)
                ]
                returned = "" if node.returns is None else ast.unparse(node.returns)
                allowed = [], ["functools.cached_property"], ["cached_property"], ["cached_per_device"]
                assert "Tensor" not in returned or cached in allowed, (
                    f"{path.name}: {node.name}: write @cached_per_device of core/native/device_cache.py"
                )
