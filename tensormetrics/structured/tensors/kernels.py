"""Triton kernel of groups of equal rows; imported only for CUDA tensors, or to be interpreted (TRITON_INTERPRET=1)."""

import triton
import triton.language as tl
from torch import Tensor

from ...core.native.triton import launch

_TILE = 64  # rows that are compared with as many others at a time


@triton.jit
def _group_rows(keys, out, length, WIDTH: tl.constexpr, TILE: tl.constexpr):
    # One program compares all pairs of rows of a document: first to sort them, then to number the distinct ones.
    document = tl.program_id(0).to(tl.int64)
    keys += document * length * WIDTH
    out += document * length * 3
    for step in tl.static_range(2):
        for start in range(0, length, TILE):
            i = start + tl.arange(0, TILE)
            before = tl.zeros((TILE,), tl.int64)
            earlier = tl.zeros((TILE,), tl.int64)
            for other in range(0, length, TILE):
                j = other + tl.arange(0, TILE)
                is_less = tl.zeros((TILE, TILE), tl.int1)
                is_equal = tl.zeros((TILE, TILE), tl.int1) == 0
                for column in tl.static_range(WIDTH):
                    a = tl.load(keys + i * WIDTH + column, mask=i < length, other=0)[:, None]
                    b = tl.load(keys + j * WIDTH + column, mask=j < length, other=0)[None, :]
                    is_less = is_less | (is_equal & (b < a))
                    is_equal = is_equal & (b == a)
                is_less = is_less & (j < length)[None, :]
                if step == 0:
                    before += tl.sum(is_less.to(tl.int64), 1)
                    earlier += tl.sum((is_equal & (j[None, :] < i[:, None])).to(tl.int64), 1)
                else:
                    is_first = tl.load(out + length + j, mask=j < length, other=1) == 0
                    before += tl.sum((is_less & is_first[None, :]).to(tl.int64), 1)
            if step == 0:
                tl.store(out + length + i, earlier, mask=i < length)
                tl.store(out + 2 * length + before + earlier, i.to(tl.int64), mask=i < length)
            else:
                tl.store(out + i, before, mask=i < length)
        tl.debug_barrier()  # the numbers of earlier rows are written before they are read


def group_rows(keys: Tensor) -> Tensor:
    # keys: (B, L, F) int64  ->  (B, 3, L)
    documents, length, width = keys.shape
    out = keys.new_empty(documents, 3, length)
    launch(_group_rows, (documents,), keys, out, length, WIDTH=width, TILE=_TILE)
    return out
