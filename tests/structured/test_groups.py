"""Rows are grouped alike by the CPU's operator, its reference and Triton's kernel, which the interpreter runs."""

import pytest
import torch
from kernels import INTERPRETED, interpreted

from tensormetrics.structured.tensors._groups import GROUP_ROWS, _group_rows, group_rows

LARGE = torch.iinfo(torch.int64)


def keys_of(kind: str, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if kind == "few":
        return torch.randint(-2, 2, shape, generator=generator)
    # Two columns of these exceed 63 bits.
    return torch.tensor([LARGE.min, LARGE.max, -1, 0, 2**40])[torch.randint(0, 5, shape, generator=generator)]


CASES = pytest.mark.parametrize(
    ("kind", "shape"),
    [(k, s) for k in ("few", "large") for s in ((3, 1, 1), (4, 9, 2), (2, 64, 3), (2, 150, 2), (1, 97, 4))],
)


@CASES
def test_groups_are_those_of_reference_and_of_unique(kind, shape):
    keys = keys_of(kind, shape)
    assert torch.equal(GROUP_ROWS(keys), _group_rows(keys))
    for rows, ids, earlier, order in zip(keys, *group_rows(keys), strict=True):
        assert torch.equal(ids, rows.unique(dim=0, return_inverse=True)[1])
        assert order.tolist() == sorted(range(len(ids)), key=lambda i: int(ids[i]))  # noqa: B023
        assert earlier.tolist() == [int((ids[:i] == ids[i]).sum()) for i in range(len(ids))]


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (2, 3, 0)])
def test_groups_of_nothing_are_those_of_reference(shape):
    keys = torch.zeros(shape, dtype=torch.int64)
    assert torch.equal(GROUP_ROWS(keys), _group_rows(keys))


@pytest.mark.emulated
@pytest.mark.skipif(torch.cuda.is_available() or INTERPRETED, reason="the test below runs in this process")
def test_groups_kernel_passes_test_below_when_interpreted():
    pytest.importorskip("triton")
    result = interpreted(__file__, "emulated")
    assert result.returncode == 0, result.stdout


@CASES
@pytest.mark.emulated
@pytest.mark.skipif(not INTERPRETED, reason="needs Triton's interpreter")
def test_groups_kernel_equals_reference(kind, shape):
    from tensormetrics.structured.tensors import kernels

    assert torch.equal(kernels.group_rows(keys_of(kind, shape)), _group_rows(keys_of(kind, shape)))
