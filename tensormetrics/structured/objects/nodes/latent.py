"""Nodes of variables, and of collections whose items share them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...tensors._integer_program import PROOF, IntegerProgram, ProgramAnswer, solve
from ...tensors._pairs import expand, positions_in_blocks
from ...tensors.constraints import Constraint
from ...tensors.latent.latent import SolvedMapping, latent_overlap
from ..columns import Keys, RowPath, check_type
from .node import Node, Variable
from .relations import equal_pairs
from .set import Bounded, BoundedRows, CandidatePairs

NODE_LIMIT = 200_000


class Named(NamedTuple):
    key: Keys  # all the same
    values: Sequence[Variable]


class VariableLeaf(Node):
    """Similarity 1: any two variables can be mapped to each other."""

    equality = dominated = has_variables = True

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> Named:
        check_type(Variable, values, where)
        return Named(Keys([None] * len(values), where, device), values)

    def similarity(self, rows: Named, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones(len(i), dtype=torch.float64, device=i.device)

    def key(self, rows: Named) -> Keys:
        return rows.key

    def variables(self, rows: Named) -> list[Sequence[Variable | None]]:
        return [rows.values]


@dataclass(eq=False)
class BoundRows(BoundedRows):
    variable_ids: Tensor  # (items, S) int64: variables, from 0 in each collection; -1: none in this slot


class LatentSet(Bounded):
    """Heaviest relation that is consistent with a one-to-one mapping of the variables; see `latent_overlap`."""

    binds = True

    def encode(self, values: Sequence[Any], split: int, where: RowPath, device: torch.device) -> BoundRows:
        rows = super().encode(values, split, where, device)
        ids: dict[Variable | None, int] = {None: -1}
        slots = [[ids.setdefault(variable, len(ids)) for variable in slot] for slot in self.inner.variables(rows.items)]
        slots = torch.tensor(slots, dtype=torch.int64, device=device).mT
        owner = torch.repeat_interleave(rows.count)
        used = slots >= 0
        variable_ids = torch.full_like(slots, -1)
        variable_ids[used] = positions_in_blocks(owner[:, None].expand_as(slots)[used], slots[used])[0]
        return BoundRows(rows.start, rows.count, rows.items, rows.key, variable_ids)

    def solve(self, rows: BoundRows, i: Tensor, j: Tensor, distinct: bool) -> tuple[Tensor, Tensor]:
        solution = self._map_variables(rows, i, j, distinct) if self.inner.equality else self._select_pairs(rows, i, j)
        return solution[:2]

    def _map_variables(self, rows: BoundRows, i: Tensor, j: Tensor, distinct: bool) -> SolvedMapping:
        # i, j: (P,) of equal length
        inputs = *self._props(rows, i), *self._props(rows, j)
        duplicates = "set" if distinct else "multiset"
        return latent_overlap(*inputs, rows.count[i], rows.count[j], self.constraint, duplicates=duplicates)

    def _props(self, rows: BoundRows, i: Tensor) -> tuple[Tensor, Tensor]:
        # ->  (P, N, 1 + S) int64, bool: the key, then the variables
        assert rows.key is not None  # items that are compared by equality have a key
        owner, item = expand(rows.start[i], rows.count[i])
        index = owner, item - rows.start[i][owner]
        variable_ids = rows.variable_ids[item]
        shape = len(i), int(rows.count[i].max()) if len(i) else 0, 1 + variable_ids.shape[1]
        props = torch.cat([rows.key.ids[item, None], variable_ids.clamp(min=0)], 1)
        is_var = torch.nn.functional.pad(variable_ids >= 0, (1, 0))
        return props.new_zeros(shape).index_put_(index, props), is_var.new_zeros(shape).index_put_(index, is_var)

    def _select_pairs(self, rows: BoundRows, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
        # i, j: (P,)  ->  value (P,) float64, bound (P,) float64, positions in the collections, of all documents
        candidates = CandidatePairs.of(self.inner, rows, i, j)
        a, b, owner, delta = candidates.a, candidates.b, candidates.owner, candidates.delta
        bound, _ = candidates.matched(self.constraint)
        value, pairs = torch.zeros_like(bound), []
        for document in bound.nonzero()[:, 0].tolist():
            mask = (owner == document) & (delta > 0)
            x, y = (rows.variable_ids[index[mask]].cpu().numpy() for index in (candidates.x, candidates.y))
            answer = select_consistent(a[mask], b[mask], delta[mask].cpu().numpy(), x, y, self.constraint)
            selected = mask.nonzero()[:, 0][torch.from_numpy(answer.selected).to(mask.device)]
            value[document] = delta[selected].sum()
            proved = answer.bound <= value[document] * (1 + PROOF)
            bound[document] = torch.where(proved, value[document], bound[document].clamp(max=answer.bound))
            start = torch.stack([rows.start[i[document]], rows.start[j[document]]])
            pairs += (torch.stack([candidates.x[selected], candidates.y[selected]], 1) - start).tolist()
        return value, bound, sorted(map(tuple, pairs))

    def relation(self, rows: BoundRows, i: Tensor, j: Tensor) -> list[tuple[int, int]]:
        if not self.inner.equality:
            return self._select_pairs(rows, i, j)[2]
        assert rows.key is not None
        (mapping,) = self._map_variables(rows, i, j, self.distinct).mapping
        (_, x), (_, y) = expand(rows.start[i], rows.count[i]), expand(rows.start[j], rows.count[j])
        table = torch.cat([mapping.where(mapping >= 0, -2), mapping.new_tensor([-1])])  # the last: no variable
        variable_ids = torch.cat([table[rows.variable_ids[x]], rows.variable_ids[y]])
        keys = list(map(tuple, torch.cat([rows.key.ids[torch.cat([x, y]), None], variable_ids], 1).tolist()))
        return equal_pairs(keys[: len(x)], keys[len(x) :], self.constraint, self.distinct)


def select_consistent(
    a: Tensor,  # (K,) items
    b: Tensor,  # (K,)
    weight: np.ndarray,  # (K,), positive
    x: np.ndarray,  # (K, S) variables of the items, -1: none
    y: np.ndarray,  # (K, S)
    constraint: Constraint,
) -> ProgramAnswer:
    """Select pairs of items by an integer program with a column per item pair and per required variable pair."""
    used = x >= 0
    links, link = np.unique(np.stack([x[used], y[used]], 1), axis=0, return_inverse=True)
    item, column = np.arange(len(weight)), len(weight) + np.arange(len(links))
    once = [(links[:, 0], column), (links[:, 1], column)]
    once += [(items.cpu().numpy(), item) for items, is_once in zip((a, b), constraint.once, strict=True) if is_once]
    row: list[np.ndarray] = []
    col: list[np.ndarray] = []
    end = 0
    for group, columns in once:
        group_ids = np.unique(group, return_inverse=True)[1]
        row, col, end = [*row, end + group_ids], [*col, columns], end + group_ids.max() + 1
    need = np.arange(used.sum())  # an item needs its links
    row, col = [*row, end + need, end + need], [*col, used.nonzero()[0], len(weight) + link]
    sign = np.ones(sum(map(len, row)))
    sign[len(sign) - len(need) :] = -1
    limit = np.concatenate([np.ones(end), np.zeros(len(need))])
    gain = np.concatenate([weight, np.zeros(len(links))])
    answer = solve(IntegerProgram(gain, np.concatenate(row), np.concatenate(col), sign, limit), 0.0, NODE_LIMIT)
    return ProgramAnswer(answer.selected[: len(weight)] > 0.5, answer.bound)
