"""The native operator equals plain torch bit by bit for any number and shape of documents."""

import pytest
import torch

from tensormetrics.core.native import native
from tensormetrics.structured import Constraint, sequence_overlap
from tensormetrics.structured.tensors.sequence import antidiagonals

pytestmark = pytest.mark.skipif(not native.has_kernel("heaviest_chain", "cpu"), reason="no native code")


@pytest.mark.parametrize("constraint", Constraint)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (15, 7, 5), (16, 5, 7), (17, 1, 9), (33, 9, 1), (0, 2, 3), (700, 16, 17)], ids=str
)
def test_equals_the_torch_code(shape, dtype, constraint, generator):
    similarity = torch.randn(shape, generator=generator, dtype=dtype)
    similarity[1::3] = torch.inf  # spoils no neighbor
    similarity[2::3, 0, 0] = -torch.inf
    value = sequence_overlap(similarity, constraint=constraint)
    assert value.dtype == torch.float64 and value[1::3].isnan().all()
    assert torch.equal(value.nan_to_num(torch.inf), antidiagonals(similarity, constraint))


def test_sequence_overlap_ignores_strides(generator):
    similarity = torch.randn(4, 6, 5, 3, generator=generator).permute(3, 0, 2, 1)
    assert torch.equal(sequence_overlap(similarity), sequence_overlap(similarity.contiguous()))


def test_heaviest_chain_passes_opcheck():
    arguments = torch.rand(3, 4, 5), True, False
    torch.library.opcheck(torch.ops.tensormetrics.heaviest_chain.default, arguments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_heaviest_chain_other_dtypes_raise(dtype):
    with pytest.raises(RuntimeError, match="wanted similarity: real B N M"):
        torch.ops.tensormetrics.heaviest_chain(torch.ones(1, 8, 8, dtype=dtype), True, True)
