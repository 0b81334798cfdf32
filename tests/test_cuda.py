"""Tests that need a GPU: native CUDA kernels, streams, graphs, and the absence of synchronization."""

import pytest
import torch
from torch import Tensor
from waiting import no_waiting

from tensormetrics.assignment import HungarianMatcher, linear_sum_assignment
from tensormetrics.assignment import _op as solver
from tensormetrics.posterior.sampling import operators as sampler

DEVICE = torch.device("cuda")
OPERATORS = ["lsa", "dirichlet_sums", "log_gamma", "item_sums", "uniforms"]
SIZES = [(50, 8, 8), (50, 30, 31), (9, 128, 128), (9, 129, 40), (5, 300, 300), (2, 3, 200, 90), (2, 9, 7000)]

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("name", OPERATORS)
def test_native_operator_has_cuda_kernel(name):
    assert torch._C._dispatch_has_kernel_for_dispatch_key(f"tensormetrics::{name}", "CUDA"), (
        "see the output of the build"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SIZES)
def test_lsa_on_gpu_equals_cpu_bitwise(shape, dtype):
    for cost in (
        torch.randn(shape, dtype=dtype),
        torch.randint(0, 3, shape).to(dtype),
        torch.randn(shape, dtype=dtype).mT,
    ):
        mask = torch.rand(cost.shape) < 0.9
        capacity = torch.randint(0, 3, (*cost.shape[:-2], cost.shape[-1]))
        for options in ((), (None, None, mask), (None, None, None, capacity)):
            result = solver.lsa(cost.to(DEVICE), False, *(x if x is None else x.to(DEVICE) for x in options))
            for a, b in zip(result, solver.lsa(cost, False, *options), strict=True):
                assert torch.equal(a.cpu().nan_to_num(), b.nan_to_num())


def test_assignment_does_not_synchronize_and_can_be_captured():
    first, second = torch.rand(2, 100, 40, 60, device=DEVICE)
    for rows, columns in ((40, 60), (40, 7000)):  # 7,000 columns are searched outside of shared memory
        cost = torch.rand(3, rows, columns, device=DEVICE)
        with no_waiting():
            linear_sum_assignment(cost, check=False)
    cost, graph = first.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = linear_sum_assignment(cost, check=False)
    for values in (second, first):
        cost.copy_(values)
        graph.replay()
        for a, b in zip(captured, linear_sum_assignment(values), strict=True):
            assert torch.equal(a, b)


def test_matcher_on_gpu_does_not_synchronize():
    boxes = torch.rand(2, 5, 4, device=DEVICE)
    outputs = {"pred_logits": torch.randn(2, 5, 3, device=DEVICE), "pred_boxes": boxes}
    targets = [{"labels": torch.zeros(n, dtype=torch.int64, device=DEVICE), "boxes": boxes[0, :n]} for n in (3, 0)]
    HungarianMatcher()(outputs, targets)
    with no_waiting():
        HungarianMatcher()(outputs, targets)


def test_assignment_runs_on_current_stream():
    stream, delay = torch.cuda.Stream(), torch.randn(4000, 4000, device=DEVICE)
    cost = torch.rand(200, 50, 50, device=DEVICE)
    expected = linear_sum_assignment(cost).col_of_row
    late = torch.zeros_like(cost)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(20):
            delay = delay @ delay * 1e-4
        late.copy_(cost)  # a kernel on another stream would see zeros
        result = linear_sum_assignment(late, check=False).col_of_row
    stream.synchronize()
    assert torch.equal(result, expected)


def keys(*shape: int) -> Tensor:
    return torch.randint(0, 2**32, (*shape, 2), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("C", [2, 100, 256, 257, 1500])
def test_dirichlet_sums_on_gpu_equal_cpu(C, dtype):
    cells = torch.randint(0, 9, (2, C, C)).double() + torch.tensor([0.3, 1.0]).view(2, 1, 1)
    forms, samples = 2, 300 // C + 3
    args = (cells.sum(-1), cells, torch.rand(forms, C, C, dtype=torch.float64), keys(2, 3), 2**32 - 2)
    result, expected = (torch.full((2, 4 * C + forms, samples), torch.nan, dtype=dtype) for _ in range(2))
    result, device_args = result.to(DEVICE), [x.to(DEVICE) if isinstance(x, Tensor) else x for x in args]
    with no_waiting():
        sampler.dirichlet_sums(result, *device_args)
    sampler.dirichlet_sums(expected, *args)
    if dtype == torch.float64:
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-11, atol=1e-300)
    else:  # rounding may accept another proposal, which changes a row of one sample
        assert torch.isclose(result.cpu(), expected, rtol=1e-5, atol=1e-37).double().mean() > 0.95


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_assignment_runs_on_device_of_input():
    cost = torch.rand(9, 20, 20)
    result = linear_sum_assignment(cost.to("cuda:1"))
    assert result.cost.device.index == 1 and torch.equal(result.cost.cpu(), linear_sum_assignment(cost).cost)
