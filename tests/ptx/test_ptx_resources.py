"""What the kernels of the .cu files take of a card, and how they reach memory."""

import re

import pytest
from kernels import hold
from library import FILES, call, missing, resources


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("name", FILES)
def test_kernels_take_no_more_than_counted(name, architecture, tmp_path):
    compiler = "nvcc " + re.search(r"release ([\d.]+)", call("nvcc", "--version"))[1]
    found = resources(name, architecture, tmp_path)
    assert len(found) > 8
    for kernel, taken in found.items():
        hold(compiler, kernel, architecture, taken)


@pytest.mark.parametrize("name", FILES)
def test_the_compiler_knows_where_memory_lies(name, request):
    """No generic load or store; but where lanes share a sample, whose kernel has shared and global memory in one."""
    kernels = request.getfixturevalue(name).text.split(".visible .entry ")[1:]
    generic = {
        kernel[: kernel.index("(")]
        for kernel in kernels
        if re.search(r"\b(ld|st)\.(?!shared|global|param|local)", kernel)
    }
    assert all(re.match(r"_ZN9dirichlet11sums_kernel", kernel) for kernel in generic), generic
