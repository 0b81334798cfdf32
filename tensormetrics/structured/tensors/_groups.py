"""Groups of equal rows of integers: unlike by hashes, different rows never share a group."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.native import native

MAX_LENGTH, MAX_WIDTH = 1024, 16  # rows of a document and columns up to which the GPU kernel compares all pairs


class Groups(NamedTuple):
    """Groups of L rows, each (..., L) int64."""

    ids: Tensor  # number of the group, from 0, rising with the columns of its rows
    earlier: Tensor  # number of earlier rows of the group
    order: Tensor  # the rows, sorted stably


# keys: (B, L, F) int64  ->  (B, 3, L) int64, the fields of `Groups`
GROUP_ROWS = native.define(
    "group_rows(Tensor keys) -> Tensor",
    lambda keys: keys.new_empty(keys.shape[0], 3, keys.shape[1]),
    native.Operator("sequence", "structured metrics of items that are equal or not", 10),
)


@native.reference("group_rows")
def _group_rows(keys: Tensor) -> Tensor:
    position = torch.arange(keys.shape[1], device=keys.device).expand(keys.shape[:2])
    order = position
    for column in reversed(keys.unbind(-1)):
        order = order.gather(-1, column.gather(-1, order).sort(stable=True, dim=-1).indices)
    rows = keys.gather(1, order[..., None].expand_as(keys))
    is_new = torch.nn.functional.pad((rows[:, 1:] != rows[:, :-1]).any(-1), (1, 0), value=True)[:, : keys.shape[1]]
    first = (position * is_new).cummax(-1).values
    sorted_groups = torch.stack([is_new.long().cumsum(-1) - 1, position - first], 1)
    groups = sorted_groups.scatter(-1, order[:, None].expand_as(sorted_groups), sorted_groups)
    return torch.cat([groups, order[:, None]], 1)


@native.on_gpu("group_rows", "groups")
def _launch(keys: Tensor) -> Tensor:
    if not keys.numel() or keys.shape[1] > MAX_LENGTH or keys.shape[2] > MAX_WIDTH:
        return _group_rows(keys)
    from .kernels import group_rows

    return group_rows(keys)


native.batch_first(
    "tensormetrics::group_rows", lambda keys: GROUP_ROWS(keys.flatten(0, 1)).unflatten(0, keys.shape[:2])
)


def count_groups(ids: Tensor, counted: Tensor, n: int) -> tuple[Tensor, Tensor]:
    # ids: (..., L)  counted: (..., L) bool, broadcast  ->  (..., L) each
    """Count the rows of each group, among the first n and among the others."""
    p, r = (
        torch.zeros_like(ids).scatter_add(-1, part, count)
        for part, count in zip(*(x.tensor_split([n], -1) for x in (ids, counted.long().expand_as(ids))), strict=True)
    )
    return p, r


def group_rows(keys: Tensor) -> Groups:
    # keys: (..., L, F) int64
    *batch, length, width = keys.shape
    groups = GROUP_ROWS(keys.reshape(math.prod(batch), length, width).contiguous())
    return Groups(*groups.view(*batch, 3, length).unbind(-2))
