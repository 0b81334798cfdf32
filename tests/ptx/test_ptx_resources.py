"""What the kernels of the .cu files take of a card, and how they reach memory."""

import re
from pathlib import Path

import pytest
from kernels import cuobjdump, hold
from library import FILES, call, cubin, missing, resources


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


def instructions(name: str, file: Path) -> dict[str, list[tuple[int, str]]]:
    """Of each kernel, compiled for an H100: addresses and instructions."""
    cubin(name, 90, file)
    kernels = (part.split(maxsplit=1) for part in cuobjdump("-sass", file).split("Function : ")[1:])
    code = {kernel: re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?) ;", text) for kernel, text in kernels}
    return {kernel: [(int(at, 16), line) for at, line in lines if line != "NOP"] for kernel, lines in code.items()}


def shortest_scan(code: list[tuple[int, str]]) -> int:
    """Instructions from the start of the smallest loop with a reduction among lanes and a vote back to it."""
    index = {at: k for k, (at, _) in enumerate(code)}
    jumps = [re.search(r"\bBRA\b.* 0x([0-9a-f]+)", line) for _, line in code]
    to = [index.get(int(jump[1], 16)) if jump else None for jump in jumps]
    loops = [(k - to[k], to[k], k) for k in range(len(code)) if to[k] is not None and to[k] < k]
    for _, first, last in sorted(loops):
        text = " ".join(line for _, line in code[first : last + 1])
        if "REDUX" in text and "VOTE" in text:
            steps = {first: 1}
            for k in range(first, last):
                ends = re.match(r"BRA 0x|EXIT|RET", code[k][1])
                for after in ([] if ends else [k + 1]) + ([to[k]] if to[k] and k < to[k] <= last else []):
                    steps[after] = min(steps.get(after, last), steps.get(k, last) + 1)
            return steps[last]
    raise LookupError("no loop over the columns")


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_path_scans_of_the_solver_take_few_instructions(tmp_path):
    kernels = instructions("lsa", tmp_path / "lsa.cubin")
    assert sum(map(len, kernels.values())) * 16 < 500 * 1024
    for layout, most in {"ILi1ELi1Ef": 80, "ILi1ELi4Ef": 140, "ILi1ELi10Ef": 220}.items():
        (code,) = (code for kernel, code in kernels.items() if layout in kernel)
        assert 60 < shortest_scan(code) <= most
        assert not any("LDL" in line or "STL" in line for _, line in code), "spilled"


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_sums_fit_the_instruction_cache(tmp_path):
    kernels = instructions("dirichlet", tmp_path / "dirichlet.cubin")
    sums = [16 * len(code) for kernel, code in kernels.items() if "11sums_kernel" in kernel]
    assert len(sums) == 4 and max(sums) < 128 * 1024


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
