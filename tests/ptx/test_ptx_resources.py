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
    index = {f"{at:x}": k for k, (at, _) in enumerate(code)}
    jumps = {k: re.search(r"\bBRA\b.* 0x([0-9a-f]+)", line) for k, (_, line) in enumerate(code)}
    to = {k: index[jump[1]] for k, jump in jumps.items() if jump and jump[1] in index}
    for last, first in sorted(to.items(), key=lambda jump: jump[0] - jump[1]):
        text = " ".join(line for _, line in code[first : last + 1])
        if "REDUX" in text and "VOTE" in text:
            steps = {first: 1}
            for k in range(first, last):
                for after in [k + 1][bool(re.match("BRA 0x|EXIT|RET", code[k][1])) :] + [to.get(k, 0)]:
                    steps[after] = min(steps.get(after, last), steps.get(k, last) + 1)
            return steps[last]
    raise LookupError("no loop over the columns")


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_hot_code_is_short(tmp_path):
    """Path scans of the solver, all of its code, and the sums of the sampler, which fit the instruction cache."""
    solver, sampler = (instructions(name, tmp_path / name) for name in ("lsa", "dirichlet"))
    assert sum(map(len, solver.values())) * 16 < 500 * 1024
    for layout, most in {"ILi1ELi1Ef": 80, "ILi1ELi4Ef": 140, "ILi1ELi10Ef": 220}.items():
        (code,) = (code for kernel, code in solver.items() if layout in kernel)
        assert 60 < shortest_scan(code) <= most
        assert not any("LDL" in line or "STL" in line for _, line in code), "spilled"
    assert all(16 * len(code) < 128 * 1024 for kernel, code in sampler.items() if "11sums_kernel" in kernel)


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
