"""Inputs of the kernels of the search: queries and references as float16, with error bounds of their products."""

from typing import NamedTuple

from torch import Tensor


class Float16Queries(NamedTuple):
    """Queries as float16; see `Float16Filter`."""

    rows: Tensor  # (Q', D'), Q' a multiple of TILE and D' of DEPTH
    left: Tensor  # (3, Q') float32, error bound of each query
    is_bounded: Tensor  # (Q,), whether the bound holds
    scale: Tensor | None = None  # (Q,) float64, factor of each query; None for Euclidean distances


class Float16References(NamedTuple):
    """References as float16; see `Float16Filter`."""

    rows: Tensor  # (R', D') float16
    bias: Tensor  # (R',) float32
    order: Tensor  # (R' + 1,) int32, the reference at each position, -1 if none; the last entry is -1
    position: Tensor  # (R,) int64, the position of each reference
    row_bounds: Tensor  # (3, R') float32, error bound of each reference
    right: Tensor  # (3, blocks) float32, error bound of each block
    left: Tensor  # (3, R') float32, `left` of the references as queries of Euclidean distances, for one part
    low: Tensor  # (1,) float64, largest norm of a low part
    factor: int  # negated coefficient of products


class CandidateReferences(NamedTuple):
    """References that may be among the k nearest of each query, in any order."""

    position: Tensor  # (2, Q, N) int32, and memory for another list
    values: Tensor  # (Q, N) float32
    num_hits: Tensor  # (Q,) int32, more than N if the list is too short
    limit: Tensor  # (Q,) float32; lower bounds of all other values are above it
