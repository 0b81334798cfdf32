"""Which word sets are compared: `Query` in words, `IndexedQuery` in rows of an embedding table."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, NamedTuple

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


class Side(NamedTuple):
    """The target sets or the attribute sets of a query, or of a batch of them, as rows of a table."""

    rows: Tensor  # (..., N) int64, one set after the other, each as wide as the longest of its place in the batch
    mask: Tensor | None  # (..., N), True = a word; None where all places are words
    shortest: Numbers  # the fewest rows of each set
    longest: Numbers

    @staticmethod
    def of(sets: Sequence[Sequence[int]], device: Any) -> "Side":
        lengths = tuple(map(len, sets))
        rows = np.fromiter(chain.from_iterable(sets), np.int64, sum(lengths))
        return Side(torch.from_numpy(rows).to(device), None, lengths, lengths)

    @staticmethod
    def stack(sides: "Sequence[Side]") -> "Side":
        """(Q, ..., N) of (..., N)."""
        shortest = tuple(map(min, zip(*(side.shortest for side in sides), strict=True)))
        longest = tuple(map(max, zip(*(side.longest for side in sides), strict=True)))
        rows = torch.stack([_fitted(side.rows, side.longest, longest) for side in sides])
        if shortest == longest:
            return Side(rows, None, shortest, longest)
        masks = (torch.ones_like(s.rows, dtype=torch.bool) if s.mask is None else s.mask for s in sides)
        mask = torch.stack([_fitted(m, side.longest, longest) for m, side in zip(masks, sides, strict=True)])
        return Side(rows, mask, shortest, longest)

    @staticmethod
    def choose(rows: Tensor, mask: Tensor, lengths: np.ndarray, chosen: Sequence[Numbers]) -> "Side":
        # rows, mask: (S, W)  lengths: (S,)  chosen: (Q, sets) numbers of sets
        chosen = np.array(chosen, dtype=np.int64).reshape(len(chosen), -1)
        shortest, longest = (tuple(extreme(lengths[chosen], 0).tolist()) for extreme in (np.min, np.max))
        widths = (rows.shape[-1],) * chosen.shape[1]
        chosen = torch.from_numpy(chosen).to(rows.device)
        rows, mask = (_fitted(table[chosen].flatten(-2), widths, longest) for table in (rows, mask))
        return Side(rows, None if shortest == longest else mask, shortest, longest)

    def stacked(self) -> tuple[Tensor, Tensor | None]:
        # ->  rows (..., sets, W), mask (..., sets, W), at the width of the longest set; row 0 in the padding
        sets, width = len(self.longest), max(self.longest, default=0)
        mask = self.mask
        if mask is None and min(self.longest, default=0) < width:
            mask = torch.ones_like(self.rows, dtype=torch.bool)
        rows, mask = (
            None if t is None else _fitted(t, self.longest, (width,) * sets).unflatten(-1, (sets, width))
            for t in (self.rows, mask)
        )
        return rows, mask

    def sets(self, vectors: Tensor, form: int | str) -> Sequence[Tensor]:
        # vectors: (..., V, D)  ->  (..., W, D) each
        rows = self.stacked()[0] if form == "n" else self.rows
        found = vectors.index_select(-2, rows.flatten())
        if rows.ndim > 1:
            found = found.unflatten(-2, rows.shape)
        return (found,) if isinstance(form, str) else found.split_with_sizes(self.longest, -2)

    def masks(self, form: int | str) -> Sequence[Tensor | None]:
        # ->  (..., W) each
        if form == "n":
            return (self.stacked()[1],)
        if form == "distinct":
            return (_first_places(self.rows, self.mask),)
        if form == "joined":
            return (self.mask,)
        if self.mask is None:
            return (None,) * len(self.longest)
        masks = self.mask.split_with_sizes(self.longest, -1)
        sizes = zip(masks, self.shortest, self.longest, strict=True)
        return tuple(None if least == most else mask for mask, least, most in sizes)


@dataclass(frozen=True, eq=False)
class IndexedQuery:
    """A query as rows of an embedding table: words are looked up once, then only tensors are read.

    `targets` (..., T, W) and `attributes` (..., A, W) int64 rows, with `target_mask`, `attribute_mask`: True = a word.
    `words` and `lost`: for targets and attributes, set by set, the keys found and the words that were not; `row_words`
    has the key of each row, as a key may have several. An unusable query has a `reason` and no rows, so that every
    score of it is NaN. A batch made by `stack` holds lists of these.
    """

    query: Any  # Query, or a list of them for a batch; words, row_words, lost and reason likewise
    sides: tuple[Side, Side]
    words: Any = None
    row_words: Any = None
    lost: Any = None
    reason: Any = None

    @staticmethod
    def of(query: Query, places: Any, words: Any, lost: Any, reason: str | None, device: Any) -> "IndexedQuery":
        """From the keys found, (side, set, key), and a function of keys to rows and their keys; no rows if unusable."""
        found = [[places([] if reason else keys) for keys in side] for side in words]
        sides = tuple(Side.of([rows for rows, _ in side], device) for side in found)
        row_words = tuple([keys for _, keys in side] for side in found)
        return IndexedQuery(query, sides, words, row_words, lost, reason)

    @staticmethod
    def stack(queries: "Sequence[IndexedQuery]") -> "IndexedQuery":
        """One batch (Q, ...) of queries with equal numbers of sets, padded to the largest set."""
        templates = [query.template for query in queries]
        if not queries or len(set(templates)) > 1:
            raise ValueError(f"queries: got {len(queries)} with the templates {templates}, wanted equal templates")
        sides = tuple(map(Side.stack, zip(*(query.sides for query in queries), strict=True)))
        listed = ([getattr(q, name) for q in queries] for name in ("words", "row_words", "lost", "reason"))
        return IndexedQuery([q.query for q in queries], sides, *listed)

    @staticmethod
    def of_sets(
        rows: Tensor, mask: Tensor, lengths: np.ndarray, targets: Sequence[Numbers], attributes: Sequence[Numbers]
    ) -> "IndexedQuery":
        # rows, mask: (S, W)  lengths: (S,)
        """A batch of nameless queries; each takes sets of one table by number, all of them equally many."""
        return IndexedQuery(None, tuple(Side.choose(rows, mask, lengths, chosen) for chosen in (targets, attributes)))

    @property
    def template(self) -> tuple[int, int]:
        return tuple(len(side.longest) for side in self.sides)

    @property
    def targets(self) -> Tensor:
        return self.sides[0].stacked()[0]

    @property
    def attributes(self) -> Tensor:
        return self.sides[1].stacked()[0]

    @property
    def target_mask(self) -> Tensor:
        return self._mask(0)

    @property
    def attribute_mask(self) -> Tensor:
        return self._mask(1)

    def sets(self, vectors: Tensor, template: Template | None = None) -> tuple[Tensor, ...]:
        # vectors: (..., V, D)  ->  per set (..., W, D) at its own width; a side of "n": (..., n, W, D)
        """The embeddings, in the order in which metrics take them: targets, then attributes.

        `template` says how a side comes: a number as one tensor per set, "n" as one stack of sets, "joined" as one set
        of all its words, "distinct" as one set in which a word of several sets counts once (by its mask). Default:
        one tensor per set.
        """
        forms = self._forms(template)
        return tuple(found for side, form in zip(self.sides, forms, strict=True) for found in side.sets(vectors, form))

    def masks(
        self, template: Template | None = None, names: Sequence[str] | None = None, paired: bool = False
    ) -> dict[str, Tensor]:
        """The masks that go with `sets`, by keyword; none where every place is a word.

        `names` of the arguments default to x, y for two targets, t for one or all, and a, b for attributes. `paired`:
        two target sets share `pair_mask`, the groups after a single one `tuple_mask`.
        """
        forms = self._forms(template)
        names = names or (*_letters(forms[0], "xy"), *_letters(forms[1], "ab"))
        found = (mask for side, form in zip(self.sides, forms, strict=True) for mask in side.masks(form))
        masks = {f"{name}_mask": mask for name, mask in zip(names, found, strict=True) if mask is not None}
        if paired and self.template[0] == 2:
            shared, _ = (masks.pop(f"{name}_mask", None) for name in names[:2])
            return masks if shared is None else {"pair_mask": shared, **masks}
        if paired and (groups := masks.pop(f"{names[-1]}_mask", None)) is not None:
            masks["tuple_mask"] = groups[..., 0, :]
        return masks

    def pools(self, side: int, i: int) -> tuple[Tensor, Tensor]:
        # ->  rows (W, K) int64, mask (W, K)
        """The rows of each word of set `i` of a side (0: targets, 1: attributes) by themselves."""
        rows, members = self.sides[side].rows.split_with_sizes(self.sides[side].longest, -1)[i], defaultdict(list)
        for place, word in enumerate(self.row_words[side][i]):
            members[word].append(place)
        places, mask = padded(list(members.values()), rows.device)
        return rows[places], mask

    def _mask(self, side: int) -> Tensor:
        rows, mask = self.sides[side].stacked()
        return torch.ones_like(rows, dtype=torch.bool) if mask is None else mask

    def _forms(self, template: Template | None) -> Template:
        if template is None:
            return self.template
        if any(form != sets and not isinstance(form, str) for form, sets in zip(template, self.template, strict=True)):
            raise ValueError(f"template: got {tuple(template)!r} for a query of {self.template} sets")
        return template


def check_query(query: Any) -> None:
    if not isinstance(query, Query):
        raise TypeError(f"query: got a {type(query).__name__}, wanted a Query")


def padded(sets: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    # -> (sets, W) int64, (sets, W) bool; row 0 in the padding
    lengths = list(map(len, sets))
    width = max(lengths, default=0)
    rows = [[*members, *[0] * (width - len(members))] for members in sets]
    rows = torch.tensor(rows, dtype=torch.int64, device=device).view(len(sets), width)
    if min(lengths, default=0) == width:
        return rows, torch.ones_like(rows, dtype=torch.bool)
    return rows, torch.arange(width, device=device) < torch.tensor(lengths, device=device).unsqueeze(-1)


def _fitted(places: Tensor, widths: Numbers, wanted: Numbers) -> Tensor:
    # places: (..., sum of widths)  ->  (..., sum of wanted), each set cut or padded with 0
    if widths == wanted:
        return places
    parts = zip(places.split_with_sizes(widths, -1), wanted, strict=True)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part, width in parts], -1)


def _first_places(rows: Tensor, mask: Tensor | None) -> Tensor:
    # rows: (..., W)  mask: (..., W)  ->  (..., W) True where a row stands for the first time
    equal = rows[..., :, None] == rows[..., None, :]
    if mask is None:
        return ~equal.tril(-1).any(-1)
    return mask & ~(equal & mask[..., None, :]).tril(-1).any(-1)


def _letters(form: int | str, letters: str) -> Sequence[str]:
    """Names of the sets of a side, of which `letters` are those of two."""
    if isinstance(form, str):
        return letters[0] if form == "n" else "t"
    if form <= 2:
        return "t" if letters == "xy" and form == 1 else letters[:form]
    return [f"{letters[0]}{i}" for i in range(form)]


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
