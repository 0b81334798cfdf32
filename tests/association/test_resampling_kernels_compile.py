"""The kernels of permutation tests compile for the supported GPUs; compiling needs no GPU."""

import pytest
from kernels import INTERPRETED, hold_resources

pytest.importorskip("triton")
if INTERPRETED:
    pytest.skip("interpreted kernels cannot be compiled", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tensormetrics.association.metrics.kernels import _score_sums
from tensormetrics.association.resampling import kernels

pytestmark = pytest.mark.filterwarnings("ignore:AnnAssign:DeprecationWarning")  # by triton, from Python 3.13 on

TYPES = {
    **dict.fromkeys(("masks", "digits", "out"), "*i8"),
    **dict.fromkeys(("start", "threshold", "rest", "num_below", "undecided", "bounds_of_upper"), "*i32"),
    **dict.fromkeys(("units", "first_bound", "last_bound"), "*i64"),
}
DRAWS = {"n": "*i64", "size": "*i64", "offset": "i64", "start": "i64"}
UNITS = {"scores": "*fp64", "units": "*i64", "grid": "*fp64", "is_finite": "*i8"}
DIGITS = {"WIDTH": 64, "LARGEST": kernels._LARGEST, "BIAS": kernels._BIAS}
SHARED = 99 * 1024  # bytes, of the smallest of these GPUs


def compile_kernel(kernel, constants, types=TYPES, stages=3, architecture=90):
    types = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
    aligned = [n for n, (name, kind) in enumerate(types.items()) if kind[0] == "*" or name == "tests"]  # as at a launch
    source = ASTSource(kernel, types, constants, {(n,): [["tt.divisibility", 16]] for n in aligned})
    options = {"num_warps": 8, "num_stages": stages, "enable_fp_fusion": False}
    return triton.compile(source, GPUTarget("cuda", architecture, 32), options)


@pytest.mark.parametrize("width", [32, 64, 128])
def test_sums_run_on_tensor_cores(width):
    constants = {"WIDTH": width, "TESTS": 128, "ROWS": 128}
    for kernel, stages in ((kernels._count, 3), (kernels._recount_undecided, 1)):
        result = compile_kernel(kernel, constants, stages=stages)
        assert "wgmma.mma_async" in result.asm["ptx"] and "s32.s8.s8" in result.asm["ptx"]
        assert result.metadata.shared <= SHARED


def test_draw_kernels_compile_to_entry_points():
    types = TYPES | DRAWS
    assert ".entry" in compile_kernel(kernels._partitions, {"ROWS": 128}, types).asm["ptx"]
    assert ".entry" in compile_kernel(kernels._write_digits, DIGITS).asm["ptx"]
    assert ".entry" in compile_kernel(kernels._units, {"SIZE": 64}, UNITS).asm["ptx"]
    assert ".entry" in compile_kernel(kernels._signs, {"SIZE": 1024}, types | {"size": "i32"}).asm["ptx"]


SUMS = {"TESTS": 128, "ROWS": 128}
LAUNCHES = {  # kernel, constants, types, stages
    **{f"draws, {n} places": (kernels._count, {"WIDTH": n, **SUMS}, TYPES, 3) for n in (64, 128)},
    "listed draws, 128 places": (kernels._recount_undecided, {"WIDTH": 128, **SUMS}, TYPES, 1),
    "partitions": (kernels._partitions, {"ROWS": 128}, TYPES | DRAWS, 3),
    "units": (kernels._units, {"SIZE": 64}, UNITS, 3),
    "digits": (kernels._write_digits, DIGITS, TYPES, 3),
    "signs": (kernels._signs, {"SIZE": 1024}, TYPES | DRAWS | {"size": "i32"}, 3),
    "score sums": (_score_sums, {"SIZE": 1024}, dict.fromkeys(("scores", "state", "out"), "*fp64"), 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("name", LAUNCHES)
def test_kernels_use_no_more_resources_than_recorded(name, architecture):
    hold_resources(name, architecture, compile_kernel(*LAUNCHES[name], architecture))
