"""Anybody may call an operator: a tensor of another dtype, order or size is an error, or gives the same answer.

The wrong calls are made by this file as a program, for a kernel that takes what it is given may end the process.
"""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from test_operators import ARGUMENTS, CELLS, answer, random_keys, same
from torch import Tensor

from tensormetrics.core.native import native

LEFT_OUT = {"supports_int16"}  # looks at nothing of its tensor
WITH_ALL: dict[str, Callable[[], tuple]] = {
    "lsa": lambda: (
        torch.rand(2, 3, 4),
        False,
        torch.tensor([3, 2]),
        torch.tensor([4, 3]),
        torch.rand(2, 3, 4) < 0.9,
        torch.tensor([[1, 2, 1, 0], [1, 1, 1, 1]]),
        torch.tensor([0.5, 2.0]),
    ),
    "dirichlet_sums": lambda: (
        torch.zeros(2, 14, 5),
        CELLS.sum(-1),
        CELLS,
        torch.arange(18.0).double().view(2, 3, 3),
        random_keys(2, 3),
        0,
    ),
}
# Sizes that an operator may have, and its reference does not take.
FREE = {
    ("count_before", 1, "empty in 0"),
    ("count_before", 5, "short in 1"),
    ("count_before", 5, "empty in 1"),
    ("parse_word_vectors", 0, "empty in 0"),
    ("finalize_topk", 0, "short in 1"),
    ("finalize_topk", 0, "long in 1"),
}
NUMBERS = 0, -1, 2**31, 2**63 - 1, -(2**63)
# Contents of the tensors of a state, by name: the argument and what to write everywhere in it.
STATES: list[tuple[str, int, float]] = [
    *(("update_topk", 7, number) for number in (-1, 40, 41, 2**31 - 1)),
    *(("finalize_topk", 1, number) for number in (-1, 41, 2**31 - 1)),
    *(("int16_candidates", 12, number) for number in (-1, 60, 61, 2**31 - 1)),
    *(("int16_candidates", 9, number) for number in (-(2**63), 2**63 - 1)),
    *(("rerank_candidates", 7, number) for number in (-1, 10, 2**31 - 1)),
    *(("rerank_candidates", 6, number) for number in (-1, 9, 2**31 - 1)),
    *(("rerank_candidates", 3, number) for number in (-1, 9, 2**63 - 1)),
    *(("rerank_candidates", 2, number) for number in (-1, 5, 2**63 - 1)),
    *(("count_before", 11, number) for number in (-1, 8, 2**63 - 1)),
    *(("count_before", 9, number) for number in (-(2**62), 2**62)),
    *(("count_before", 4, number) for number in (-1, 2**62)),
    *(("canonical_pairs", k, number) for k in (2, 3) for number in (-1, 5, 2**63 - 1)),
    *(("quantize_rows", 1, number) for number in (-2, 5, 2**63 - 1)),
    *(("item_sums", 1, number) for number in (-1, 4, 2**63 - 1)),
    *(("parse_numbers", 1, number) for number in (-1, 2**63 - 1)),
    *(("pack_fields", 1, number) for number in (-1, 2**63 - 1)),
    *(("extreme_draws", k, number) for k in (1, 2) for number in (-1, 5, 2**63 - 1)),
    *(("extreme_subsets", 0, number) for number in (-(2**63), 2**63 - 1)),
    *(("extreme_subsets", 2, number) for number in (-1, 5, 2**63 - 1)),
    *(("lsa", k, number) for k in (2, 3, 5) for number in (-1, 5, 2**63 - 1)),
]
# Sizes that no memory has, of tensors without an entry, and states that have no room.
ODD: dict[str, Callable[[], tuple]] = {
    "heaviest_chain": lambda: (torch.empty(0, 2**30, 2**30), True, False),
    "extreme_draws": lambda: (torch.empty(0, 2**55 - 1, dtype=torch.float64), None, None, None, None, 7, 9),
    "extreme_subsets": lambda: (
        torch.ones(1, 112, dtype=torch.int64), torch.ones(1, 112, dtype=torch.bool), torch.ones(1, dtype=torch.int64),
        torch.ones(1, dtype=torch.int64), None,
    ),
    "quantize_rows": lambda: (
        torch.randn(0, 8), torch.full((4,), -1), torch.zeros(8).double(), 1.0,
        torch.zeros(1, 4, 64, 2, dtype=torch.int16), torch.zeros(64), torch.zeros(3, 64).double(), 0,
    ),
    "int16_candidates": lambda: (
        *(arguments := ARGUMENTS["int16_candidates"]())[:10], torch.zeros(70, 2, 7), torch.zeros(70, 7).int(),
        *arguments[12:14], 3, False,
    ),
}  # fmt: skip
TYPES = torch.float16, torch.float32, torch.float64, torch.uint8, torch.int32, torch.int64, torch.bool


def kernels() -> list[str]:
    """Return the operators that were built, and look at their arguments."""
    return [name for name in sorted(set(ARGUMENTS) - LEFT_OUT) if native.has_kernel(name, "cpu")]


def variants(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What the tensor might be by mistake."""
    yield from ((f"of {dtype}", tensor.to(dtype)) for dtype in TYPES if dtype != tensor.dtype)
    yield "every other entry", torch.stack([tensor, tensor], -1)[..., 0]
    if tensor.ndim > 1:
        yield "transposed", tensor.transpose(0, -1).contiguous().transpose(0, -1)
    for d, size in enumerate(tensor.shape):
        yield f"short in {d}", tensor.narrow(d, 0, size - 1).contiguous()
        yield f"long in {d}", torch.cat([tensor, tensor.narrow(d, 0, 1)], d)
        yield f"empty in {d}", tensor.narrow(d, 0, 0).contiguous()
    yield "one dimension more", tensor[None]
    yield "one dimension less", tensor.flatten(0, 1) if tensor.ndim > 1 else tensor[0]


def is_harmless(name: str, arguments: tuple, right: tuple | None = None, has_order: bool = True) -> bool:
    """Is there an error, or the answer of the arguments that are right, or that of the reference for these?"""
    try:
        found = answer(name, arguments)
    except (RuntimeError, OverflowError, MemoryError):
        return True
    if not has_order:  # what has none is only to be given
        return True
    try:
        return same(found, answer(name, right or arguments, reference=right is None))
    except Exception:  # of many kinds
        return False


def hostile_calls() -> Iterator[tuple[str, str, tuple]]:
    """Numbers and contents that are of the right kind and cannot be meant."""
    for name in kernels():
        arguments = (ARGUMENTS | WITH_ALL)[name]()
        for k, right in enumerate(arguments):
            if isinstance(right, int) and not isinstance(right, bool):
                for number in NUMBERS:
                    if (name, k, number) == ("extreme_draws", 6, 2**31):  # are as many draws as may be wanted
                        continue
                    yield name, f"argument {k} = {number}", (*arguments[:k], number, *arguments[k + 1 :])
    for name, k, number in (state for state in STATES if state[0] in kernels()):
        arguments = (ARGUMENTS | WITH_ALL)[name]()
        yield (
            name,
            f"argument {k} full of {number}",
            (
                *arguments[:k],
                torch.full_like(arguments[k], number),
                *arguments[k + 1 :],
            ),
        )


def main() -> None:
    torch.manual_seed(0)
    for name in kernels():
        arguments = (ARGUMENTS | WITH_ALL)[name]()
        for k, right in enumerate(arguments):
            for what, wrong in variants(right) if isinstance(right, Tensor) else ():
                if (name, k, what) in FREE:
                    continue
                print(f"{name}: argument {k}, {what}", end=": ", flush=True)
                given = *arguments[:k], wrong, *arguments[k + 1 :]
                is_same = wrong.dtype == right.dtype and wrong.shape == right.shape
                is_right = is_harmless(name, given, arguments if is_same else None)
                print("harmless" if is_right else "WRONG", flush=True)
    for name, odd in ((name, ODD[name]) for name in ODD if name in kernels()):
        print(f"{name}: of odd sizes", end=": ", flush=True)
        try:
            answer(name, odd())
        except RuntimeError:
            pass
        print("harmless", flush=True)
    for name, what, arguments in hostile_calls():
        print(f"{name}: {what}", end=": ", flush=True)
        is_right = is_harmless(name, arguments, has_order=name != "int16_candidates")
        print("harmless" if is_right else "WRONG", flush=True)
    print("end")


@pytest.mark.full
def test_wrong_tensors_are_errors():
    program = [sys.executable, Path(__file__).name]
    told = subprocess.run(program, cwd=Path(__file__).parent, capture_output=True, text=True)
    lines = told.stdout.splitlines()
    assert [line for line in lines if not line.endswith(": harmless")] == ["end"], told.stderr[-2000:]
    assert len(lines) > 900


def test_no_subset_has_more_places_than_there_are():
    units, present = torch.tensor([[1, 2, 3]]), torch.tensor([[True, False, True]])
    for n, count in ((0, 1), (1, 2), (2, 1), (3, 0), (4, 0)):
        found = torch.ops.tensormetrics.extreme_subsets(units, present, torch.tensor([n]), torch.tensor([-99]), None)
        assert found.tolist() == [count]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
