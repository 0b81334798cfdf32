"""Which word sets are compared: `Query` in words, `IndexedQuery` in rows of an embedding table."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

Numbers = tuple[int, ...]
Template = tuple[int | str, int | str]  # (target sets, attribute sets); "n" is one or more


class Query:
    """Target and attribute sets of words, as association tests compare them.

        Query([flowers, weapons], [pleasant], ["Flowers", "Weapons"], ["Pleasant"])

    Sets are lists, tuples or arrays of `str`; they are copied. At least one target set; attribute sets may be none. A
    set may be empty, which no model can score. Names default to "Target set 0", "Attribute set 0", ... and are
    distinct on each side. TypeError for anything that is no set of words, ValueError for the number or the names.
    """

    def __init__(
        self,
        target_sets: Sequence[Sequence[str]],
        attribute_sets: Sequence[Sequence[str]],
        target_sets_names: Sequence[str] | None = None,
        attribute_sets_names: Sequence[str] | None = None,
    ) -> None:
        self.target_sets = _word_sets("target_sets", target_sets)
        self.attribute_sets = _word_sets("attribute_sets", attribute_sets)
        if not self.target_sets:
            raise ValueError("target_sets: got 0 sets, wanted at least one")
        self.target_sets_names = _names("target_sets", "Target", target_sets_names, len(self.target_sets))
        self.attribute_sets_names = _names(
            "attribute_sets", "Attribute", attribute_sets_names, len(self.attribute_sets)
        )
        self.template = (len(self.target_sets), len(self.attribute_sets))
        self.query_name = " wrt ".join(filter(None, map(joined, (self.target_sets_names, self.attribute_sets_names))))

    def get_subqueries(self, template: Template) -> "list[Query]":
        """One query for each choice of `template` sets, in lexicographic order, targets outermost; "n" keeps a side."""
        if not isinstance(template, tuple | list) or len(template) != 2:
            raise TypeError(f"template: got {template!r}, wanted a pair (target sets, attribute sets)")
        targets, attributes = (
            list(combinations(range(available), _cardinality(side, asked, available, self.query_name)))
            for side, asked, available in zip(("target", "attribute"), template, self.template, strict=True)
        )
        return [self._choose(t, a) for t in targets for a in attributes]

    def _choose(self, targets: Sequence[int], attributes: Sequence[int]) -> "Query":
        return Query(
            [self.target_sets[i] for i in targets],
            [self.attribute_sets[i] for i in attributes],
            [self.target_sets_names[i] for i in targets],
            [self.attribute_sets_names[i] for i in attributes],
        )

    def dict(self) -> Mapping[str, Any]:
        names = ("target_sets", "attribute_sets", "target_sets_names", "attribute_sets_names", "query_name", "template")
        return {name: getattr(self, name) for name in names}

    def __eq__(self, other: object) -> bool:
        return self.dict() == other.dict() if isinstance(other, Query) else NotImplemented

    __hash__ = None  # the sets are lists

    def __repr__(self) -> str:
        sets = f"- Target sets: {self.target_sets!r}\n- Attribute sets:{self.attribute_sets!r}"
        return f"<Query: {self.query_name}\n{sets}>"


@dataclass(frozen=True, eq=False)
class IndexedQuery:
    """A query as rows of an embedding table: words are looked up once, then only tensors are read.

    `targets` (..., T, W) and `attributes` (..., A, W) int64 rows, with `target_mask`, `attribute_mask`: True = a word.
    `words` and `lost`: for targets and attributes, set by set, the keys found and the words that were not; `row_words`
    has the key of each row, as a key may have several. An unusable query has a `reason` and no rows, so that every
    score of it is NaN. A batch made by `stack` holds lists of these.
    """

    query: Any  # Query, or a list of them for a batch; words, lost and reason likewise
    targets: Tensor
    attributes: Tensor
    target_mask: Tensor
    attribute_mask: Tensor
    words: Any
    row_words: Any
    lost: Any
    reason: Any
    lengths: tuple[tuple[tuple[int, ...], ...], ...]  # rows of each set: (batch flattened, side, set)

    @staticmethod
    def of(query: Query, places: Any, words: Any, lost: Any, reason: str | None, device: Any) -> "IndexedQuery":
        """From the keys found, (side, set, key), and a function of keys to rows and their keys; no rows if unusable."""
        found = [[places([] if reason else keys) for keys in side] for side in words]
        rows = [[rows for rows, _ in side] for side in found]
        row_words = tuple([keys for _, keys in side] for side in found)
        lengths = tuple(tuple(map(len, side)) for side in rows)
        (targets, target_mask), (attributes, attribute_mask) = (padded(side, device) for side in rows)
        tensors = (targets, attributes, target_mask, attribute_mask)
        return IndexedQuery(query, *tensors, words, row_words, lost, reason, (lengths,))

    @staticmethod
    def stack(queries: "Sequence[IndexedQuery]") -> "IndexedQuery":
        """One batch (Q, ...) of queries with equal numbers of sets, padded to the largest set."""
        templates = [query.template for query in queries]
        if not queries or len(set(templates)) > 1:
            raise ValueError(f"queries: got {len(queries)} with the templates {templates}, wanted equal templates")
        sides = {name: [getattr(query, name) for query in queries] for name in _TENSORS}
        widths = {name: max(tensor.shape[-1] for tensor in tensors) for name, tensors in sides.items()}
        stacked = {
            name: torch.stack([_widened(tensor, widths[name]) for tensor in tensors]) for name, tensors in sides.items()
        }
        listed = {
            name: [getattr(query, name) for query in queries]
            for name in ("query", "words", "row_words", "lost", "reason")
        }
        return IndexedQuery(**stacked, **listed, lengths=sum((query.lengths for query in queries), ()))

    @staticmethod
    def of_sets(
        rows: Tensor, mask: Tensor, lengths: Sequence[int], targets: Sequence[Numbers], attributes: Sequence[Numbers]
    ) -> "IndexedQuery":
        # rows, mask: (S, W)
        """A batch of nameless queries; each takes sets of one table by number, all of them equally many."""
        device = rows.device
        chosen = [torch.tensor(side, device=device).view(len(side), -1) for side in (targets, attributes)]
        widths = [
            tuple(tuple(lengths[s] for s in side) for side in pair) for pair in zip(targets, attributes, strict=True)
        ]
        return IndexedQuery(
            None, *(rows[c] for c in chosen), *(mask[c] for c in chosen), None, None, None, None, tuple(widths)
        )

    @property
    def template(self) -> tuple[int, int]:
        return self.targets.shape[-2], self.attributes.shape[-2]

    def sets(self, vectors: Tensor, template: Template | None = None) -> tuple[Tensor, ...]:
        # vectors: (..., V, D)  ->  per set (..., W, D) at its own width; a side of "n": (..., n, W, D)
        """The embeddings, in the order in which metrics take them: targets, then attributes.

        `template` says how a side comes: a number as one tensor per set, "n" as one stack of sets, "joined" as one set
        of all its words, "distinct" as one set in which a word of several sets counts once (by its mask). Default:
        one tensor per set.
        """
        sides = [  # (..., sets, W, D)
            vectors.index_select(-2, rows.flatten()).unflatten(-2, rows.shape)
            for rows in (self.targets, self.attributes)
        ]
        return tuple(
            sides[side].flatten(-3, -2) if place is JOINED else sides[side][(..., *place, slice(None))]
            for _, side, place, _ in self._arguments(template)
        )

    def masks(
        self, template: Template | None = None, names: Sequence[str] | None = None, paired: bool = False
    ) -> dict[str, Tensor]:
        """The masks that go with `sets`, by keyword; none where every place is a word.

        `names` of the arguments default to x, y for two targets, t for one or all, and a, b for attributes. `paired`:
        two target sets share `pair_mask`, the groups after a single one `tuple_mask`.
        """
        arguments = self._arguments(template)
        names = names or [name for name, *_ in arguments]
        masks = {f"{name}_mask": mask for name, (*_, mask) in zip(names, arguments, strict=True) if mask is not None}
        if paired and self.template[0] == 2:
            shared, _ = (masks.pop(f"{name}_mask", None) for name in names[:2])
            return masks if shared is None else {"pair_mask": shared, **masks}
        if paired and (groups := masks.pop(f"{names[-1]}_mask", None)) is not None:
            masks["tuple_mask"] = groups[..., 0, :]
        return masks

    def pools(self, side: int, i: int) -> tuple[Tensor, Tensor]:
        # ->  rows (W, K) int64, mask (W, K)
        """The rows of each word of set `i` of a side (0: targets, 1: attributes) by themselves."""
        rows, members = (self.targets, self.attributes)[side][i], defaultdict(list)
        for place, word in enumerate(self.row_words[side][i]):
            members[word].append(place)
        places, mask = padded(list(members.values()), rows.device)
        return rows[places], mask

    def _arguments(self, template: Template | None) -> list[tuple[str, int, tuple, Tensor | None]]:
        # -> per argument: name, side, its place in (..., sets, W), its mask or None if all True
        template = self.template if template is None else template
        sides = ((self.targets, self.target_mask, "xy"), (self.attributes, self.attribute_mask, "ab"))
        found = []
        for side, ((rows, mask, letters), form) in enumerate(zip(sides, template, strict=True)):
            widths = [{query[side][i] for query in self.lengths} for i in range(rows.shape[-2])]
            ragged = any(width != {rows.shape[-1]} for width in widths)
            if form == "n":
                found.append((letters[0], side, (slice(None), slice(None)), mask if ragged else None))
            elif form == "joined":
                found.append(("t", side, JOINED, mask.flatten(-2) if ragged else None))
            elif form == "distinct":
                found.append(("t", side, JOINED, _first_places(rows.flatten(-2), mask.flatten(-2))))
            elif form == rows.shape[-2]:
                names = "t" if form == 1 and side == 0 else letters
                names = list(names) if form <= 2 else [f"{names[0]}{i}" for i in range(form)]
                for i, width in enumerate(widths):
                    place = (i, slice(max(width, default=0)))
                    found.append((names[i], side, place, mask[(..., *place)] if len(width) > 1 else None))
            else:
                raise ValueError(f"template: got {tuple(template)!r} for a query of {self.template} sets")
        return found


def check_query(query: Any) -> None:
    if not isinstance(query, Query):
        raise TypeError(f"query: got a {type(query).__name__}, wanted a Query")


_TENSORS = ("targets", "attributes", "target_mask", "attribute_mask")
JOINED = ()  # the place of all words of a side, one set after the other


def padded(sets: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    # -> (sets, W) int64, (sets, W) bool; row 0 in the padding
    lengths = list(map(len, sets))
    width = max(lengths, default=0)
    rows = [[*members, *[0] * (width - len(members))] for members in sets]
    rows = torch.tensor(rows, dtype=torch.int64, device=device).view(len(sets), width)
    if min(lengths, default=0) == width:
        return rows, torch.ones_like(rows, dtype=torch.bool)
    return rows, torch.arange(width, device=device) < torch.tensor(lengths, device=device).unsqueeze(-1)


def _widened(tensor: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (0, width - tensor.shape[-1]))


def _first_places(rows: Tensor, mask: Tensor) -> Tensor:
    # rows: (..., W)  mask: (..., W)  ->  (..., W) True where a row stands for the first time
    equal = (rows[..., :, None] == rows[..., None, :]) & mask[..., None, :]
    return mask & ~equal.tril(-1).any(-1)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _word_sets(argument: str, sets: Any) -> list[list[str]]:
    if not _is_list(sets):
        raise TypeError(f"{argument}: got a {type(sets).__name__}, wanted a list of lists of words")
    return [list(_words(f"{argument}[{i}]", members)) for i, members in enumerate(sets)]


def _words(argument: str, members: Any) -> Iterator[str]:
    if not _is_list(members):
        raise TypeError(f"{argument}: got a {type(members).__name__}, wanted a list of words")
    for i, word in enumerate(members):
        if not isinstance(word, str):
            raise TypeError(f"{argument}[{i}]: got a {type(word).__name__}, wanted a word (str)")
        yield str(word)


def _names(argument: str, default: str, names: Any, sets: int) -> list[str]:
    if names is None:
        return [f"{default} set {i}" for i in range(sets)]
    names = list(_words(f"{argument}_names", names))
    if len(names) != sets:
        raise ValueError(f"{argument}_names: got {len(names)} names for {sets} sets, wanted one for each")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{argument}_names: got {repeated} more than once, wanted distinct names")
    return names


def joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _cardinality(side: str, asked: Any, available: int, query_name: str) -> int:
    if isinstance(asked, str) and asked == "n":
        return available
    if not isinstance(asked, int) or isinstance(asked, bool):
        raise TypeError(f"template: got {asked!r} {side} sets, wanted an integer or 'n'")
    least = 1 if side == "target" else 0
    if not least <= asked <= available:
        raise ValueError(
            f"template: got {asked} {side} sets, wanted {least} to {available}, as many as {query_name!r} has"
        )
    return asked
