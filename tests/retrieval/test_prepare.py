"""Rows prepared by the Triton kernels: equal to torch within the same bounds, in few launches with little traffic."""

import pytest
import torch
from fake_device import DEVICE, Device
from kernels import INTERPRETED
from retrieval_oracle import families
from torch import Tensor

from tensormetrics.retrieval.search.distance import DISTANCES
from tensormetrics.retrieval.search.fp16_filter import Float16Filter
from tensormetrics.retrieval.search.product_filter import Filter, Normalization

N = 70
HARD = ("gaussian", "large common mean", "outliers", "three distinct points", "all zeros")


def make_filter(x: Tensor, distance: str, parts: int, normalization: Normalization | None = None) -> Float16Filter:
    from tensormetrics.retrieval.search.kernels import nearest

    return Float16Filter(Filter(x, DISTANCES[distance], torch.float32, normalization=normalization), nearest, parts)


@pytest.fixture
def distant_columns(tmp_path) -> Tensor:
    """Return rows whose columns are 2^20 elements apart in a sparse file, large enough that wrong offsets are valid."""
    start, columns, stride = 2**31, 2080, 2**20
    size = 4 * (start + columns * stride)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(size)
    base = torch.from_file(str(tmp_path / "sparse"), shared=True, size=size // 4)
    x = base.as_strided((24, columns), (1, stride), start)
    x.copy_(torch.randn(24, columns, generator=torch.Generator().manual_seed(0)))
    return x


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("distance, parts", [("l2", 1), ("cosine", 2)])
def test_kernels_columns_over_2_31_elements_match_dense(distance, parts, both, device, distant_columns):
    if device.type != "cpu":
        pytest.skip("needs memory of 17 GB on the device")
    dense = distant_columns.contiguous()
    pairs = torch.arange(24), torch.arange(24).flip(0)

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        table = make_filter(x, distance, parts)
        queries = table.query(x)
        delta = DISTANCES[distance].of_pairs(x, x, *pairs, memory=2**20)
        return table.rows, table.bias, table.filter.norms, queries.rows, queries.left, delta

    _, from_dense = both(lambda: compute(dense))
    _, from_strided = both(lambda: compute(distant_columns))
    assert all(torch.equal(x, y) for x, y in zip(from_dense, from_strided, strict=True))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # raised by numpy, which the interpreter uses
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
def test_prepared_tables_of_kernels_match_torch(dtype, distance, parts, both, device):
    x = (torch.randn(N, 70, device=device) * torch.logspace(-3, 0, N, device=device)[:, None] + 1).to(dtype)
    x[3, 5], x[9, 0] = torch.nan, torch.inf
    close = {"rtol": 2**-9, "atol": 1e-6 if parts == 1 else 0.01}  # high parts may differ, and low parts with them
    normalization = Normalization(x[20:].double().mean(0), torch.tensor(2.0**-5, dtype=torch.float64, device=device))
    expected, actual = both(lambda: make_filter(x, distance, parts, normalization))
    for name in ("rows", "bias", "order", "position"):
        from_torch, from_kernel = getattr(expected, name), getattr(actual, name)
        same = (from_torch == from_kernel).float().mean()
        assert same == 1 if name in ("order", "position") else same > 0.99  # sums in another order
        torch.testing.assert_close(from_kernel, from_torch, **close)
    for name in ("row_bounds", "right"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), rtol=1e-3, atol=1e-9)
    from_torch, from_kernel = expected.query(x), actual.query(x)
    assert torch.equal(from_torch.is_bounded, from_kernel.is_bounded) and from_torch.is_bounded.sum() == N - 2
    ratio = torch.ones(N, 1, device=device)
    if distance != "l2":  # a norm close to a power of two may be rounded to a smaller or larger scale
        ratio = (from_torch.scale / from_kernel.scale)[:, None].float()
    torch.testing.assert_close(from_kernel.rows[:N] * ratio, from_torch.rows[:N].float(), **close)
    torch.testing.assert_close(from_kernel.left[:, :N].mT * ratio, from_torch.left[:, :N].mT, rtol=1e-3, atol=1e-9)
    if distance == "l2" and parts == 1:
        torch.testing.assert_close(actual.as_queries.left, expected.as_queries.left, rtol=1e-3, atol=1e-9)
        assert torch.equal(actual.as_queries.is_bounded, expected.as_queries.is_bounded)


@pytest.mark.parametrize("distance", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("family", HARD)
def test_prepared_filter_error_bounds_hold(family, distance, both, device):
    x = torch.tensor(families(N)[family], device=device)
    for parts in (1, 2):
        fp16_filter = both(lambda: make_filter(x, distance, parts))[1]  # noqa: B023
        order = fp16_filter.order[:-1].long()
        is_row = order >= 0
        row = torch.arange(N, device=device).repeat_interleave(N)
        delta = DISTANCES[distance].of_pairs(x, x, row, order[is_row].repeat(N), 2**28).view(N, N)
        queries = fp16_filter.query(x)
        factor, shift = (part[:, None] for part in fp16_filter.affine_map(x, queries))
        products = queries.rows.double() @ fp16_filter.rows.double().T
        value = (fp16_filter.bias - (fp16_filter.factor * products).float())[:N, is_row].double()
        sum_error, length, twice_query_error = queries.left.double()[:, :N, None]
        rounded_norm, lost_norm, ref_error = fp16_filter.row_bounds.double()[:, is_row]
        bound = sum_error * rounded_norm + length * lost_norm + ref_error + twice_query_error / 2
        assert queries.is_bounded.all() and ((value - (factor * delta + shift)).abs() <= bound).all()
        assert torch.equal(fp16_filter.right[:, :1], fp16_filter.row_bounds[:, :128:4].amax(1, keepdim=True))
        if distance == "l2" and parts == 1:
            self_left = fp16_filter.as_queries.left[:, fp16_filter.position]
            torch.testing.assert_close(self_left, queries.left[:, :N], rtol=1e-5, atol=1e-12)


@pytest.mark.skipif(not INTERPRETED, reason="the interpreter's launches are counted")
def test_prepare_limits_launches_and_memory_traffic():
    with Device(kernels=True) as device:
        x = torch.randn(2560, 512).to(DEVICE)
        device.operators = device.bytes = 0
        fp16_filter = make_filter(x, "l2", 1)
        fp16_filter.as_queries  # noqa: B018
        assert device.operators <= 12 and device.bytes <= 12.6 * x.numel()  # two reads, the table twice, a sample
        device.operators = device.bytes = 0
        fp16_filter.query(x)
        assert device.operators <= 2 and device.bytes <= 8.1 * x.numel()
