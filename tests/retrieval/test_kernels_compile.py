"""Triton kernels compile for the supported GPUs; compilation needs no GPU."""

import os

import pytest
from kernels import hold_resources

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("interpreted kernels cannot be compiled", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tensormetrics.retrieval.search.kernels import (
    assign,
    canonical,
    clusters,
    counting,
    direct,
    finish,
    nearest,
    prepare,
    scores,
)

FP16_ARRAYS, INT32_ARRAYS = ("x", "y"), ("selected", "num_selected", "num_hits", "below")
INT64_ARRAYS = ("source", "self_index", "nearest", "row")
FP32_ARRAYS = ("left", "right", "row_bounds", "bias", "block_min", "limit", "low", "high", "values", "upper")
TYPES = {
    **dict.fromkeys(FP16_ARRAYS, "*fp16"),
    **dict.fromkeys(FP32_ARRAYS, "*fp32"),
    **dict.fromkeys(INT32_ARRAYS, "*i32"),
    **dict.fromkeys(INT64_ARRAYS, "*i64"),
    "index": "*i32",
    "delta": "*fp64",
}
PRODUCT = {"factor": 2, "TILE": 128, "DEPTH": 64, "STRIDE": 4, "STRIP": 8}
COUNT_CONSTANTS = {name: PRODUCT[name] for name in ("factor", "TILE", "DEPTH", "STRIP")}
PAIRS = {"query": "*fp32", "reference": "*bf16", "column": "*i32"}


def compile_kernel(kernel, constants, types, warps, stages=3, architecture=90):
    types = {name: "constexpr" if name in constants else (TYPES | types).get(name, "i32") for name in kernel.arg_names}
    # As at a launch: pointers and sizes that are multiples of 16 are declared divisible by 16.
    divisible = [
        n for n, (name, kind) in enumerate(types.items()) if kind[0] == "*" or name in ("dim", "size", "queries")
    ]
    source = ASTSource(kernel, types, constants, {(n,): [["tt.divisibility", 16]] for n in divisible})
    is_filter = kernel in (direct._bounds, counting._count_below, assign._assign)
    has_fused_multiply_add = is_filter or kernel.__module__.endswith(".nearest")
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": has_fused_multiply_add}
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_canonical_distances_round_every_operation(kind):
    ptx = compile_kernel(canonical._canonical, canonical_sizes(128, kind) | {"HAS_ROW": True}, PAIRS, 4).asm["ptx"]
    assert "fma.rn.f64" not in ptx and "add.rn.f64" in ptx and "mul.rn.f64" in ptx
    assert ("sqrt.rn.f64" in ptx) == ("div.rn.f64" in ptx) == (kind == 2)


COUNT_TYPES = PAIRS | {"num_undecided": "*i64", "index": "*i64", "is_bounded": "*i8", "top": "*fp32"}
COUNT_TYPES |= dict.fromkeys(("center", "sizes", "query_scale", "listed_delta"), "*fp64")
COUNT_TYPES |= dict.fromkeys(("listed", "order", "row_of", "position"), "*i32") | {"largest": "*fp32"}
COUNT_TYPES |= dict.fromkeys(("positive", "relevant", "before", "place"), "*i64")
BLOCK_CONSTANTS = {"factor": 2, "BLOCKS": 4, "DEPTH": 64, "STRIDE": 4}


def distance_constants(dim, kind, count):
    sizes = {"KIND": kind, "COUNT": count, "SIZE": dim, "LOG": dim.bit_length() - 1}
    return sizes | {"query_step": 1, "reference_step": 1}


POSITIVE_CONSTANTS = distance_constants(128, 0, 16) | {"WIDTH": 512, "CHUNK": 256, "RUN": 64}
INTERVAL_CONSTANTS = {"factor": 2, "UNIT": False, "ROWS": 16, "SIZE": 128, "query_step": 1}


def canonical_sizes(dim, kind):
    return distance_constants(dim, kind, 4096 // dim) | {"HAS_ROW": False}


PREPARE_TYPES = {"x": "*fp32", "rounding": "fp32", "summing": "fp32", "nonfinite": "*i8", "is_bounded": "*i8"}
PREPARE_TYPES |= dict.fromkeys(("center", "norms", "fixed_scale", "sizes"), "*fp64")
PREPARE_TYPES |= dict.fromkeys(("largest", "max_low", "lengths", "ordered", "position"), "*i64")
PREPARE_TYPES |= {"table": "*fp16", "order": "*i32"}
ROUND_CONSTANTS = {"factor": 2, "UNIT": False, "PARTS": 1, "SIZE": 64, "x_step": 1}
QUERY_CONSTANTS = ROUND_CONSTANTS | {"ROWS": 32, "ORDERED": False}
ROW_TYPES = {"x": "*fp32", "y": "*fp32", "table": "*fp32", "query": "*fp32", "reference": "*fp32", "status": "*i32"}
BOUND_TYPES = ROW_TYPES | {"lower": "*fp32", "minima": "*fp32", "ignored": "*i8", "relative": "fp32", "tiny": "fp32"}
BOUND_CONSTANTS = {"IS_SELF": True, "HAS_SELF": False, "HAS_MASK": False, "TQ": 64, "TR": 128, "BLOCK": 32}
NEAREST_TYPES = BOUND_TYPES | {"listed": "*i32", "best": "*i32", "best_delta": "*fp64", "distances": "*fp32"}
NEAREST_TYPES |= {"indices": "*i64"}
NEAREST_CONSTANTS = {"IS_ROOT": True, "HAS_DISTANCES": True, "BLOCK": 32, "WIDTH": 256, "CHUNK": 1024}
MATCH_TYPES = ROW_TYPES | {"rank": "*i32", "scores": "*fp64", "means": "*fp64"}
LABELS = "query_labels", "reference_labels", "ordered"
MATCH_TYPES |= dict.fromkeys(("indices", *LABELS, "relevant", "candidates", "codes"), "*i64")
MATCH_CONSTANTS = {"IS_SELF": True, "HAS_STATUS": True, "IS_FLOAT": False, "ROWS": 128, "WIDTH": 16, "LONE": 2}
MATCH_CONSTANTS |= {"SCORED": 4, "NOT_FINITE": 1}
MEAN_CONSTANTS = {"ZERO": False, "SIZE": 1024}


def nearest_constants(dim, best, kind):
    return NEAREST_CONSTANTS | distance_constants(dim, kind, min(4096 // dim, 16)) | {"BEST": best}


SUM_CONSTANTS = {"EMPTY": 1, "CHANGED": 2, "ROWS": 32, "SIZE": 128, "x_step": 1}
SUM_TYPES = ROW_TYPES | {"units": "*fp64", "sums": "*fp64"}
SUM_TYPES |= dict.fromkeys(("ordered", "order", "previous", "counts"), "*i64")
INFORMATION_TYPES = dict.fromkeys(("row", "col", "count", "row_size", "col_size"), "*i64")
INFORMATION_TYPES |= dict.fromkeys(("sums", "log_factorial", "expected"), "*fp64")
SCORES = {"IS_PRECISION": False, "HAS_GAIN": True, "WIDTH": 128, "LOG": 7}
SCORE_TYPES = dict.fromkeys(("terms", "ideal", "gain", "best"), "*fp64") | {"divisor": "*i64"}
SELECTION = {"SAMPLED": False, "QUERIES": 1}
FINISH_TYPES = PAIRS | {"order": "*i32", "is_bounded": "*i8", "is_proven": "*i8"}


def finish_constants(capacity, dim):
    sizes = {"CAPACITY": capacity, "CHUNK": min(capacity, 256), "RUN": min(capacity, 64), "SAMPLED": True}
    return sizes | distance_constants(dim, 0, min(4096 // dim, 16))


ASSIGN_CONSTANTS = {"TILE": 128, "DEPTH": 64}
ASSIGN_TYPES = {"clusters": "*i64", "undecided": "*i32", "num_undecided": "*i32", "is_bounded": "*i8"}
ASSIGN_TYPES |= {"query": "*fp32", "reference": "*fp64"}


def recheck_constants(dim):
    sizes = {"ROWS": 16, "SIZE": dim, "LOG": dim.bit_length() - 1, "query_step": 1, "reference_step": 1}
    return ASSIGN_CONSTANTS | sizes


LAUNCHES = {  # kernel, constants, types, warps, stages
    "block minima, half of all tiles": (nearest._block_minima, PRODUCT | {"symmetric": True}, {}, 4, 3),
    "block minima, all tiles": (nearest._block_minima, PRODUCT | {"symmetric": False}, {}, 4, 3),
    "many": (nearest._collect, PRODUCT, {}, 8, 3),
    "sample": (nearest._sample, COUNT_CONSTANTS, {}, 8, 3),
    "rank counts": (counting._count_below, COUNT_CONSTANTS, COUNT_TYPES, 8, 3),
    "positives": (counting._sort_positives, POSITIVE_CONSTANTS, COUNT_TYPES, 4, 1),
    "intervals": (counting._intervals, INTERVAL_CONSTANTS, COUNT_TYPES, 4, 3),
    "undecided": (counting._place_undecided, distance_constants(128, 0, 32) | {"TIES": 0}, COUNT_TYPES, 4, 3),
    "matches of 8,192": (scores._matches, MATCH_CONSTANTS | {"ROWS": 1, "WIDTH": 8192}, MATCH_TYPES, 16, 3),
    "choose of 2,048": (nearest._select_blocks, SELECTION | {"WIDTH": 2048}, {}, 8, 3),
    "choose of 8,192": (nearest._select_blocks, SELECTION | {"WIDTH": 8192}, {}, 16, 3),
    "few": (nearest._collect_from_blocks, BLOCK_CONSTANTS, {}, 4, 3),
    "finish of 32": (finish._finish, finish_constants(32, 128), FINISH_TYPES, 4, 1),
    "l2, D = 128": (canonical._canonical, canonical_sizes(128, 0), PAIRS, 4, 3),
    "l2, D = 512": (canonical._canonical, canonical_sizes(512, 0), PAIRS, 4, 3),
    "middle": (prepare._center, {"UNIT": False, "ROWS": 128, "SIZE": 32, "x_step": 1}, PREPARE_TYPES, 8, 3),
    "lengths": (prepare._lengths, {"UNIT": False, "ROWS": 8, "SIZE": 256, "x_step": 1}, PREPARE_TYPES, 4, 3),
    "sizes": (prepare._sizes, {"HAS_SCALE": False, "SIZE": 256}, PREPARE_TYPES, 4, 3),
    "references": (
        prepare._references, ROUND_CONSTANTS | {"BLOCK": 32, "STRIDE": 4, "LONGEST": 16}, PREPARE_TYPES, 8, 3
    ),
    "centroids": (
        prepare._queries, QUERY_CONSTANTS | {"ORDERED": True},
        PREPARE_TYPES | {"x": "*fp64", "query_scale": "*fp32"}, 8, 3
    ),
    "assignment": (assign._assign, ASSIGN_CONSTANTS, ASSIGN_TYPES, 8, 3),
    "undecided rows, D = 128": (assign._recheck, recheck_constants(128), ASSIGN_TYPES, 8, 3),
    "undecided rows, D = 512": (assign._recheck, recheck_constants(512), ASSIGN_TYPES, 8, 3),
    "queries": (prepare._queries, QUERY_CONSTANTS, PREPARE_TYPES | {"query_scale": "*fp32"}, 8, 3),
    "queries of two parts, cosine": (
        prepare._queries, QUERY_CONSTANTS | {"factor": 1, "PARTS": 2, "UNIT": True},
        PREPARE_TYPES | {"query_scale": "*fp64"}, 8, 3
    ),
    "cosine, D = 512": (canonical._canonical, canonical_sizes(512, 2), PAIRS, 4, 3),
    "finish of 2,048, D = 512": (finish._finish, finish_constants(2048, 512), FINISH_TYPES, 16, 1),
    "finish of 8,192": (finish._finish, finish_constants(8192, 128), FINISH_TYPES, 16, 1),
    "transposed": (
        direct._transposed, {"HAS_STATUS": True, "ROWS": 64, "COLUMNS": 32, "x_step": 1}, ROW_TYPES, 4, 3
    ),
    "bounds": (direct._bounds, BOUND_CONSTANTS | {"KIND": 0}, BOUND_TYPES, 4, 3),
    "bounds of cosine": (direct._bounds, BOUND_CONSTANTS | {"KIND": 2, "HAS_MASK": True}, BOUND_TYPES, 4, 3),
    "nearest, D = 128": (direct._nearest, nearest_constants(128, 16, 0), NEAREST_TYPES, 4, 1),
    "nearest 128, D = 512": (direct._nearest, nearest_constants(512, 128, 2), NEAREST_TYPES, 4, 1),
    "matches": (scores._matches, MATCH_CONSTANTS, MATCH_TYPES, 4, 3),
    "cluster sums": (clusters._cluster_sums, SUM_CONSTANTS, SUM_TYPES, 4, 3),
    "information": (clusters._information, {"STEPS": 16, "SIZE": 1024}, INFORMATION_TYPES, 4, 3),
    "expected information": (clusters._expected_information, {"SIZE": 128}, INFORMATION_TYPES, 1, 3),
    "means": (scores._means, MEAN_CONSTANTS | {"HAS_CODES": False}, MATCH_TYPES, 8, 3),
    "means of classes": (scores._means, MEAN_CONSTANTS | {"HAS_CODES": True}, MATCH_TYPES, 8, 3),
    "graded scores of 128": (scores._rank_scores, SCORES, MATCH_TYPES | SCORE_TYPES, 4, 3),
}  # fmt: skip


EXACT = assign._recheck, canonical._canonical, finish._finish, direct._nearest, clusters._cluster_sums
EXACT += counting._sort_positives, counting._place_undecided
PRODUCTS = "block minima, half of all tiles", "block minima, all tiles", "many", "sample", "rank counts", "assignment"


@pytest.mark.parametrize("name", [PRODUCTS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in PRODUCTS[1:])])
def test_products_run_on_tensor_cores(name):
    ptx = compile_kernel(*LAUNCHES[name]).asm["ptx"]
    assert "wgmma.mma_async" in ptx and "f32.f16.f16" in ptx
    assert ptx.count("st.shared") <= 32 or name not in PRODUCTS[:2]  # a block of rows is computed by one warp


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("name", LAUNCHES)
def test_kernels_use_no_more_resources_than_recorded(name, architecture):
    kernel = compile_kernel(*LAUNCHES[name], architecture)
    hold_resources(name, architecture, kernel)
    if LAUNCHES[name][0] in EXACT:  # it would change bits
        assert "fma.rn.f64" not in kernel.asm["ptx"]


@pytest.mark.emulated
@pytest.mark.parametrize(
    "name", ["many", "rank counts", "lengths", "transposed", "matches", "cluster sums", "assignment"]
)
def test_atomics_have_no_memory_barrier(name):
    ptx = compile_kernel(*LAUNCHES[name]).asm["ptx"]
    assert ".global.gpu.relaxed." in ptx and ".acq_rel" not in ptx  # of atom, and of red where nothing reads the result
