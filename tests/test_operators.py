"""The native operators: each has a kernel, a reference that gives the same, and a contract."""

import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tensormetrics import assignment, association, posterior, retrieval, structured  # noqa: F401
from tensormetrics.core.native import native

ROOT = Path(__file__).parents[1]
REFERENCE = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
IGNORED = torch.arange(11 * 20).view(11, 20) % 7 == 0


def filtered(dtype: torch.dtype, halved: bool) -> tuple:
    """Arguments of update_topk: 11 queries and 20 references, of which the last is no reference."""
    x = torch.randn(20, 3).round().to(dtype)  # with ties
    bias = x.square().sum(1)
    bias[-1] = torch.inf
    first, queries, rows = (4, x[4:15], 20) if halved else (0, x[:11], 11)
    own = torch.arange(first, first + 11)
    least = torch.empty(rows, 2 * 4 + 32, 2, dtype=dtype), torch.zeros(rows, dtype=torch.int32)
    limit = torch.full((rows,), torch.inf, dtype=dtype)
    return queries, -2 * x[first:], bias, first, own, None if halved else IGNORED, *least, limit, 4, 4 if halved else -1


def kept(dtype: torch.dtype, halved: bool = False) -> tuple:
    """Arguments of finalize_topk, from the kernel of update_topk."""
    arguments = filtered(dtype, halved)
    torch.ops.tensormetrics.update_topk(*arguments)
    return *arguments[6:9], 4


def counted() -> tuple:
    """Arguments of count_before: 11 queries and 20 references, squared distances, every third one a positive."""
    reference = torch.randn(20, 3).round()
    query = reference[:11].double()
    delta, index = torch.cdist(query, reference[::3].double()).square().round().sort(dim=1, stable=True)
    places = delta, 3 * index, torch.full((11,), 7), torch.ones(11, dtype=torch.float64), -query.square().sum(1)
    bias, error = reference.square().sum(1), torch.full((11,), 1e-5, dtype=torch.float64)
    sides = reference[:11], -2 * reference, bias, 0, torch.full((11,), -1), IGNORED, query, reference, torch.arange(20)
    return *sides, *places, error, 0, 0, torch.zeros(11, 8, dtype=torch.int64)


def words(dim: int = 20) -> tuple:
    """Arguments of int16_candidates: 70 queries that are the first of 128 references, of which the last is none."""
    z = torch.randn(128, dim).double()
    z /= z.norm(dim=1).max()
    rounded = torch.zeros(2, dim // 2, 64, 2, dtype=torch.int16), torch.zeros(128), torch.zeros(3, 128).double()
    torch.ops.tensormetrics.quantize_rows(z, None, torch.zeros(dim).double(), 1.0, *rounded, 0)
    panels, scale, (length, whole, left) = rounded
    bias = z.square().sum(1).float()
    bias[-1] = torch.inf
    share = torch.maximum(length / length.max(), left / left.max()).float()
    width = 2.1 * (left * length.max() + whole * left.max())[:70].float()
    lists = (
        torch.zeros(70, 2, 60),
        torch.zeros(70, 60, dtype=torch.int32),
        torch.zeros(70, dtype=torch.int32),
        torch.full((70,), torch.inf),
    )
    sides = panels, -2 * scale, panels, scale, bias, share, 1e-6 * bias[:-1].mean().expand(128).contiguous()
    return *sides, width, torch.full((70,), 1e-6), torch.arange(70), *lists, 3, False


def possible() -> tuple:
    """Arguments of rerank_candidates: 5 queries, 9 references, of each query what is listed."""
    x, rows = torch.randn(5, 20), torch.randn(9, 20)
    order = torch.arange(9).flip(0)
    lower = (x[:, None] - rows[order]).square().sum(2)[[4, 3, 2, 1, 0]]
    bounds = torch.stack([lower - 0.5, lower + 0.5], 1)
    column, number = torch.arange(9, dtype=torch.int32).repeat(5, 1), torch.tensor([8, 9, 2, 8, 8], dtype=torch.int32)
    lists = torch.full((5,), 1e-4), bounds, column, number, torch.full((5,), torch.inf)
    return x.double(), rows, torch.arange(5).flip(0), order, *lists, 3, 0


def random_keys(*shape: int) -> Tensor:
    return torch.randint(0, 2**32, (*shape, 2))


TEXT = torch.tensor(list(b"a 1.25 -3\n\n nan +7 c"), dtype=torch.uint8)
WORDS = torch.tensor(list(b"a 1.25 -3\r\nNew  York\t inf +7e-1 \n"), dtype=torch.uint8)
HALVES = torch.arange(2.0**16, dtype=torch.float64)
CELLS = torch.arange(1.0, 19, dtype=torch.float64).view(2, 3, 3)
ARGUMENTS: dict[str, Callable[[], tuple]] = {
    "lsa": lambda: (torch.rand(2, 3, 4), False),
    "log_gamma": lambda: (torch.zeros(2, 3, 3, 5), CELLS, random_keys(2), 0),
    "dirichlet_sums": lambda: (torch.zeros(2, 12, 5), CELLS.sum(-1), CELLS, None, random_keys(2, 3), 0),
    "item_sums": lambda: (torch.zeros(2, 4, 5).double(), torch.tensor([[0, 3], [2, 2]]), random_keys(1)[0], 0),
    "item_weights": lambda: (torch.zeros(9, 5).double(), torch.arange(5), HALVES, random_keys(1)[0], 2),
    "uniforms": lambda: (torch.zeros(9).double(), random_keys(1)[0], 2),
    "canonical_pairs": lambda: (torch.rand(4, 3).double(), torch.rand(5, 3), torch.arange(4), torch.arange(4), 2),
    "update_topk": lambda: filtered(torch.float32, False),
    "finalize_topk": lambda: kept(torch.float32),
    "count_before": counted,
    "quantize_rows": lambda: (
        torch.randn(5, 21).double() * 10.0 ** torch.arange(-24, 1, 6)[:, None],
        torch.tensor([4, 0, -1, 2, 1]),
        1e-25 * torch.randn(21).double(),
        0.5,
        torch.zeros(2, 11, 64, 2, dtype=torch.int16),
        torch.zeros(128),
        torch.zeros(3, 128).double(),
        61,
    ),
    "supports_int16": lambda: (torch.zeros(1),),
    "int16_candidates": words,
    "rerank_candidates": possible,
    "split_columns": lambda: (TEXT, 3, [0, 2]),
    "parse_word_vectors": lambda: (WORDS, 2),
    "parse_numbers": lambda: (TEXT, torch.tensor([[0, 1], [2, 6], [6, 8], [10, 13]])),
    "pack_fields": lambda: (TEXT, torch.tensor([[0, 1], [2, 6], [6, 8]]), 2),
    "heaviest_chain": lambda: (torch.rand(3, 4, 5), True, False),
}


UNITS, PLACES = torch.tensor([[3, -1, 4, 1], [5, 9, 2, 0]]), torch.tensor([4, 3])
ARGUMENTS |= {
    "extreme_draws": lambda: (UNITS.double(), PLACES // 2, PLACES, None, torch.tensor([3, 9]), 77, 99),
    "extreme_subsets": lambda: (UNITS, UNITS != 0, PLACES // 2, torch.tensor([3, 9]), None),
    "group_rows": lambda: (torch.randint(-2, 2, (3, 50, 2)),),
    "score_sums": lambda: (torch.tensor([0.3, torch.nan, -2.0, torch.inf]).double(), torch.arange(5).double()),
}


SETS = re.compile("topk|supports|candidates")  # of what these give or write a part has no order


def result_of(name: str, arguments: tuple, reference: bool = False) -> list[Tensor]:
    """What an operator returns, and what it wrote to, on a copy of the arguments."""
    arguments = tuple(each.clone() if isinstance(each, Tensor) else each for each in arguments)
    operator = getattr(torch.ops.tensormetrics, name).default
    returned = operator.redispatch(REFERENCE, *arguments) if reference else operator(*arguments)
    returned = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    written = [each for each, of in zip(arguments, operator._schema.arguments, strict=False) if of.is_write]
    return [*returned, *written]


def answer(name: str, arguments: tuple, reference: bool = False) -> list[Tensor]:
    """What is defined of the results of an operator."""
    results = result_of(name, arguments, reference)
    if name == "update_topk":  # in any order, and with memory behind
        return result_of("finalize_topk", (*results, arguments[9]), reference)[:2]
    if name == "finalize_topk":
        return results[:2]
    if name == "count_before":
        return [results[0][:, :-1]]
    if name == "rerank_candidates":
        return results[:3]
    if name == "parse_word_vectors" and results[2]:  # some line is another, and nothing else means anything
        return results[2:]
    return [results[k] for k in (0, 1, 4, 5)] if name == "lsa" else results


def same(answers: list[Tensor], others: list[Tensor]) -> bool:
    return all(
        a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b, 1e-5, 1e-12, equal_nan=True)
        for a, b in zip(answers, others, strict=True)
    )


@pytest.fixture
def without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def skip_without_vnni():
    if not torch.ops.tensormetrics.supports_int16(torch.zeros(1)):
        pytest.skip("this processor does not multiply int16 numbers (VNNI)")


def test_every_operator_has_a_row():
    assert set(ARGUMENTS) == set(native.OPERATORS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_contract(name):
    if name == "int16_candidates":
        skip_without_vnni()
    torch.library.opcheck(getattr(torch.ops.tensormetrics, name).default, ARGUMENTS[name]())


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if not SETS.search(name)])
def test_the_reference_gives_what_the_kernel_gives(name, without_warnings):
    arguments = ARGUMENTS[name]()
    for a, b in zip(answer(name, arguments), answer(name, arguments, reference=True), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-5 if a.dtype == torch.float32 else 1e-11, atol=1e-30)


@pytest.mark.parametrize("halved", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_references_keep_what_the_kernels_keep(dtype, halved, without_warnings):
    arguments = filtered(dtype, halved)
    results = []
    for reference in (False, True):
        *_, keys, number, limit = result_of("update_topk", arguments, reference)
        results.append(result_of("finalize_topk", (keys, number, limit, 4), reference)[:2])
    (values, columns), (expected, of) = results
    assert torch.equal(values, expected) and torch.equal(columns, of)
    assert (columns >= 0).sum() > 40 and 19 not in columns


@pytest.mark.parametrize("is_symmetric", [False, True])
def test_references_list_by_words_what_the_kernels_list(is_symmetric, without_warnings):
    skip_without_vnni()
    arguments = words()
    if is_symmetric:  # all rows are queries
        of_all = [torch.cat([each, each[:57]]) for each in arguments[7:9]]
        lists = torch.zeros(127, 2, 60), torch.zeros(127, 60, dtype=torch.int32), torch.zeros(127, dtype=torch.int32)
        arguments = *arguments[:7], *of_all, torch.arange(127), *lists, torch.full((127,), torch.inf), 3, True
    sets = []
    for reference in (False, True):
        bounds, column, number, limit = result_of("int16_candidates", arguments, reference)
        if not reference:
            at_most = result_of("int16_candidates", arguments, True)[3]
        rows = zip(bounds[:, 0], column, number.tolist(), at_most, strict=True)
        sets.append([set(c[:n][v[:n] < most].tolist()) for v, c, n, most in rows])
    assert sets[0] == sets[1] and 200 < sum(map(len, sets[0])) < 2_000
    assert all(q not in found and 127 not in found for q, found in enumerate(sets[0]))


def test_the_nearest_of_what_is_listed(without_warnings):
    arguments = possible()
    (index, delta, known), expected = (answer("rerank_candidates", arguments, reference) for reference in (False, True))
    assert all(map(torch.equal, (index, delta, known), expected))
    assert known.tolist() == [1, 1, 1, 0, 1] and (index < 0).sum() == 4


def test_a_fallback_is_told_at_the_callers_line(monkeypatch):
    monkeypatch.setattr(native, "has_kernel", lambda name, device: False)
    native.warn_missing.cache_clear()
    with pytest.warns(RuntimeWarning) as told:
        retrieval.TorchKNN().indices(torch.eye(3), 1, torch.eye(3), True)
        retrieval.AccuracyCalculator(include=("mean_average_precision",)).get_accuracy(
            torch.eye(4), torch.tensor([0] * 4)
        )
    assert {warning.filename for warning in told} == {__file__}
    assert sorted({str(warning.message).partition(",")[0] for warning in told}) == [
        "TorchKNN and its users: there is no native code for cpu",
        "positive_ranks and scores with k=None: there is no native code for cpu",
    ]
    assert len(told) == 2
    native.warn_missing.cache_clear()


def test_one_choice_of_vectors_and_one_loop_over_threads():
    words = re.compile(r"__builtin_cpu_supports|target\(|parallel_for\(")
    users = {path.name for path in (ROOT / "csrc").rglob("*.[hc]*") if words.search(path.read_text())}
    assert users == {"parallel.h"}


def test_canonical_distances_are_not_fused():
    if not shutil.which("objdump") or not (native.FOLDER / "_nearest.so").exists():
        pytest.skip("needs objdump and the library")
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", native.FOLDER / "_nearest.so"], capture_output=True, text=True
    ).stdout
    assert "vmulpd" in listing and not re.findall(r"\bvfn?m(?:add|sub)\w*[ps]d\b", listing)


@pytest.mark.full
def test_out_of_memory_is_an_error_in_the_name_of_the_operator():
    program = """
import resource, torch
from tensormetrics.structured.functional import sequence_overlap
chain = torch.ones(1, 1, 4_000_000)
sequence_overlap(chain[..., :9])
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2**28, -1))
try:
    sequence_overlap(chain)  # wants 1 GB
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""
    if not Path("/proc/self/statm").exists() or not native.has_kernel("heaviest_chain", "cpu"):
        pytest.skip("needs Linux and the library")
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert told.stdout.strip().endswith("heaviest_chain: out of memory"), told
