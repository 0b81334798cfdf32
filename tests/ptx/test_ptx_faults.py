"""What the stand-in for the card finds: a kernel with a fault in it does not pass."""

import shutil
from pathlib import Path

import pytest
import torch
from library import CSRC, SCHEMAS, built, loaded, missing
from oracle import equal
from torch import Tensor

from tensormetrics.assignment import _op as solver
from tensormetrics.posterior.sampling import operators as sampler

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]


def broken(name: str, cache: Path, file: str, line: str, fault: str):
    """A .cu file with another line in one of its files."""
    shutil.copytree(CSRC, cache / "csrc")
    (path,) = (cache / "csrc").rglob(file)
    text = path.read_text()
    assert text.count(line) == 1, f"{file} has no line {line!r}"
    path.write_text(text.replace(line, fault))
    ptx = loaded(built(name, cache, csrc=cache / "csrc"), SCHEMAS[name])
    ptx.insert("H100")
    return ptx


def assignments(operator) -> list[Tensor]:
    cost = torch.rand(20, 40, 50, generator=torch.Generator().manual_seed(0))
    return operator(cost, False)


@pytest.mark.parametrize(
    "file, line, fault",
    [
        ("lsa_registers.h", "if constexpr (W == 1) __syncwarp();", "if constexpr (W == 1) return;"),
        ("lsa_registers.h", "kIndices = 5", "kIndices = 3"),
    ],
)
def test_a_missing_sync_and_too_little_shared_memory(file, line, fault, tmp_path):
    ptx = broken("lsa", tmp_path, file, line, fault)
    try:
        found = assignments(ptx.ops.lsa)
    except RuntimeError as error:
        assert "emulated lanes" in str(error)
    else:
        assert not equal(found, assignments(solver.lsa))


def test_a_wrong_bound(tmp_path):
    line, fault = "if (from == 0 && s < problem.samples)", "if (from == 0 && s <= problem.samples)"
    ptx = broken("dirichlet", tmp_path, "dirichlet_cuda.cu", line, fault)
    key, cells = torch.tensor([1, 2]), torch.zeros(1, 3, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="item_sums_kernel.*an address outside of all tensors"):
        ptx.ops.item_sums(torch.empty(1, 1, 5, dtype=torch.float64), cells, key, 0)
    sampler.item_sums(torch.empty(1, 1, 5, dtype=torch.float64), cells, key, 0)  # the CPU's own has no fault
