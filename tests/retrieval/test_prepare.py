"""Rows that the Triton kernels make ready: those of plain torch, within the same bounds, in few launches and bytes."""

import ast
import functools
import re
from pathlib import Path

import pytest
import torch
from kernels import INTERPRETED, interpreted
from ranks_oracle import families
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tensormetrics import _gpu_kernels, _warm_up
from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.fp16_filter import Float16Filter
from tensormetrics.retrieval.search.product_filter import Filter, Normalization

N = 70
HARD = ("gaussian", "large common mean", "outliers", "three distinct points", "all zeros")


@pytest.mark.skipif(torch.cuda.is_available() or INTERPRETED, reason="the tests below run in this process")
def test_interpreted_kernels():
    pytest.importorskip("triton")
    result = interpreted(__file__, "not slow")
    assert result.returncode == 0, result.stdout


def made(x: Tensor, distance: str, parts: int, frame: Normalization | None = None) -> Float16Filter:
    from tensormetrics.retrieval.search.kernels import nearest

    return Float16Filter(Filter(x, DISTANCES[distance], torch.float32, normalization=frame), nearest, parts)


STRIDES = re.compile(r"\w*_row|\w*_step|step")


def test_products_of_an_index_and_a_stride_are_made_of_64_bits():
    """Rows far apart lie beyond 2^31 numbers; products of 32 bits would wrap around and read elsewhere."""
    products = 0
    for path in (Path(_gpu_kernels.__file__).parent / "retrieval/search/kernels").glob("*.py"):
        kernels = [
            node
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef)
            and any("triton.jit" in ast.unparse(each) for each in node.decorator_list)
        ]
        for kernel in kernels:
            strides = {each.arg for each in kernel.args.args if STRIDES.fullmatch(each.arg)}
            for node in ast.walk(kernel):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and ast.unparse(node.right) in strides:
                    products += 1
                    assert ast.unparse(node.left).endswith(".to(tl.int64)"), f"{path.name}: {ast.unparse(node)}"
    assert products >= 8


@pytest.fixture
def far_apart(tmp_path) -> Tensor:
    """Rows by columns that are 2^20 numbers apart, in a sparse file; a wrong address falls into it as well."""
    begin, columns, apart = 2**31, 2080, 2**20
    size = 4 * (begin + columns * apart)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(size)
    base = torch.from_file(str(tmp_path / "sparse"), shared=True, size=size // 4)
    x = base.as_strided((24, columns), (1, apart), begin)
    x.copy_(torch.randn(24, columns, generator=torch.Generator().manual_seed(0)))
    return x


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("distance, parts", [("l2", 1), ("cosine", 2)])
def test_kernels_read_columns_that_are_far_apart(distance, parts, both, device, far_apart):
    if device.type != "cpu":
        pytest.skip("needs memory of 17 GB on the device")
    dense = far_apart.contiguous()
    pairs = torch.arange(24), torch.arange(24).flip(0)

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        table = made(x, distance, parts)
        queries = table.query(x)
        delta = DISTANCES[distance].of_pairs(x, x, *pairs, memory=2**20)
        return table.rows, table.bias, table.filter.norms, queries.rows, queries.left, delta

    _, of_dense = both(lambda: compute(dense))
    _, of_far = both(lambda: compute(far_apart))
    assert all(torch.equal(x, y) for x, y in zip(of_dense, of_far, strict=True))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of numpy, on which the interpreter computes
@pytest.mark.parametrize(
    "dtype, distance, parts",
    [
        (torch.float32, "l2", 1),
        (torch.float32, "ip", 2),
        (torch.float16, "cosine", 1),
        (torch.float64, "l2", 2),
        (torch.bfloat16, "cosine", 2),
    ],
)
def test_tables_are_those_of_plain_torch(dtype, distance, parts, both, device):
    x = (torch.randn(N, 70, device=device) * torch.logspace(-3, 0, N, device=device)[:, None] + 1).to(dtype)
    x[3, 5], x[9, 0] = torch.nan, torch.inf
    close = {"rtol": 2**-9, "atol": 1e-6 if parts == 1 else 0.01}  # a low part may be that of another high part
    frame = Normalization(x[20:].double().mean(0), torch.tensor(2.0**-5, dtype=torch.float64, device=device))
    plain, found = both(lambda: made(x, distance, parts, frame))
    for name in ("rows", "bias", "order", "position"):
        of_plain, of_kernel = getattr(plain, name), getattr(found, name)
        same = (of_plain == of_kernel).float().mean()
        assert same == 1 if name in ("order", "position") else same > 0.99  # sums in another order
        torch.testing.assert_close(of_kernel, of_plain, **close)
    for name in ("row_bounds", "right"):
        torch.testing.assert_close(getattr(found, name), getattr(plain, name), rtol=1e-3, atol=1e-9)
    of_plain, of_kernel = plain.query(x), found.query(x)
    assert torch.equal(of_plain.is_bounded, of_kernel.is_bounded) and of_plain.is_bounded.sum() == N - 2
    ratio = torch.ones(N, 1, device=device)
    if distance != "l2":  # a length may be on either side of a power of two
        ratio = (of_plain.scale / of_kernel.scale)[:, None].float()
    torch.testing.assert_close(of_kernel.rows[:N] * ratio, of_plain.rows[:N].float(), **close)
    torch.testing.assert_close(of_kernel.left[:, :N].mT * ratio, of_plain.left[:, :N].mT, rtol=1e-3, atol=1e-9)
    if distance == "l2" and parts == 1:
        torch.testing.assert_close(found.as_queries.left, plain.as_queries.left, rtol=1e-3, atol=1e-9)
        assert torch.equal(found.as_queries.is_bounded, plain.as_queries.is_bounded)


@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("family", HARD)
def test_bounds_hold(family, distance, both, device):
    x = torch.tensor(families(N)[family], device=device)
    for parts in (1, 2):
        halves = both(lambda: made(x, distance, parts))[1]  # noqa: B023
        order = halves.order[:-1].long()
        there = order >= 0
        row = torch.arange(N, device=device).repeat_interleave(N)
        delta = DISTANCES[distance].of_pairs(x, x, row, order[there].repeat(N), 2**28).view(N, N)
        queries = halves.query(x)
        factor, shift = (part[:, None] for part in halves.affine_map(x, queries))
        products = queries.rows.double() @ halves.rows.double().T
        value = (halves.bias - (halves.factor * products).float())[:N, there].double()
        near, length, twice = queries.left.double()[:, :N, None]
        kept, lost, own = halves.row_bounds.double()[:, there]
        bound = near * kept + length * lost + own + twice / 2
        assert queries.is_bounded.all() and ((value - (factor * delta + shift)).abs() <= bound).all()
        assert torch.equal(halves.right[:, :1], halves.row_bounds[:, :128:4].amax(1, keepdim=True))
        if distance == "l2" and parts == 1:
            own = halves.as_queries.left[:, halves.position]
            torch.testing.assert_close(own, queries.left[:, :N], rtol=1e-5, atol=1e-12)


class Launches(TorchDispatchMode):
    """Counts operators and launches of kernels, and the bytes of the tensors that these are given or give back."""

    def __init__(self) -> None:
        super().__init__()
        self.number = self.bytes = 0

    def add(self, tensors) -> None:
        self.number += 1
        self.bytes += sum(x.numel() * x.element_size() for x in tensors if isinstance(x, Tensor))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not func.is_view and func._schema.name != "aten::empty":
            self.add([*tree_leaves((args, kwargs)), *tree_leaves(result)])
        return result


def test_few_launches_and_bytes(device, monkeypatch):
    if not INTERPRETED:
        pytest.skip("the interpreter's launches are counted")
    from triton.runtime.interpreter import GridExecutor

    monkeypatch.setattr(_gpu_kernels, "can_use", lambda name, device: True)
    x, counted, called = torch.randn(2560, 512, device=device), Launches(), GridExecutor.__call__

    @functools.wraps(called)
    def launch(executor, *args, **kwargs):
        counted.add([*args, *kwargs.values()])
        with torch.utils._python_dispatch._disable_current_modes():
            return called(executor, *args, **kwargs)

    monkeypatch.setattr(GridExecutor, "__call__", launch)
    with counted:
        halves = made(x, "l2", 1)
        halves.as_queries  # noqa: B018
    assert counted.number <= 12 and counted.bytes <= 11 * x.numel()  # two readings, what is written, a sample
    counted.number = counted.bytes = 0
    with counted:
        halves.query(x)
    assert counted.number <= 2 and counted.bytes <= (4 + 2 + 0.1) * x.numel()


@pytest.mark.slow
def test_warming_up_launches_every_kernel(device, monkeypatch):
    if not INTERPRETED:
        pytest.skip("the interpreter's launches are counted")
    from triton.runtime.interpreter import GridExecutor

    launched, called = set(), GridExecutor.__call__

    def launch(executor, *args, **kwargs):
        launched.add(executor.fn.__name__)
        return called(executor, *args, **kwargs)

    monkeypatch.setattr(GridExecutor, "__call__", launch)
    monkeypatch.setattr(_gpu_kernels, "can_use", lambda name, device: True)
    for job in _warm_up.jobs((6,)):
        if job[1] != "cosine":  # as "ip"
            _warm_up.run(job, str(device))
    sources = [
        *Path(_gpu_kernels.__file__).parent.rglob("kernels/*.py"),
        Path(_gpu_kernels.__file__).parent / "association/resampling/kernels.py",
    ]
    assert launched == {
        name for source in sources for name in re.findall(r"^ +(_\w+)\[", source.read_text(), re.MULTILINE)
    }
