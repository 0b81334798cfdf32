"""Which word sets are compared: `Query` in words, `IndexedQuery` in rows of an embedding table."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..sets.word_sets import Vectors
from .indexed_sets import Form, Numbers, Side, number_words, padded

Template = tuple[int | Literal["n"], int | Literal["n"]]  # (target sets, attribute sets); "n" is one or more
Forms = tuple[Form, Form]


class Query:
    """Target and attribute sets of words, as association tests compare them.

    Sets are lists, tuples or arrays of `str`; they are copied. At least one target set; attribute sets may be none. A
    set may be empty, which no model can score. Names default to "Target set 0", "Attribute set 0", ... and are
    distinct on each side. TypeError for anything that is no set of words, ValueError for the number or the names.

    >>> query = Query([["rose", "lily"], ["gun", "axe"]], [["love", "joy"]], ["Flowers", "Weapons"], ["Pleasant"])
    >>> query.query_name
    'Flowers and Weapons wrt Pleasant'
    """

    def __init__(
        self,
        target_sets: Sequence[Sequence[str]],
        attribute_sets: Sequence[Sequence[str]],
        target_sets_names: Sequence[str] | None = None,
        attribute_sets_names: Sequence[str] | None = None,
    ) -> None:
        self.target_sets = check_word_sets("target_sets", target_sets)
        self.attribute_sets = check_word_sets("attribute_sets", attribute_sets)
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

    query: Any  # Query, or a list of them for a batch; words, row_words, lost and reason likewise
    sides: tuple[Side, Side]
    words: Any = None
    row_words: Any = None
    lost: Any = None
    reason: Any = None

    @staticmethod
    def of(query: Query, found: Any, looked_up: Any, device: Any) -> "IndexedQuery":
        """From the rows of each set with the number of the key of each, and from what was looked up."""
        words, origins, lost, reason = looked_up
        targets, attributes = (
            Side.of(
                [rows for rows, _ in side], [number_words(k, o) for (_, k), o in zip(side, own, strict=True)], device
            )
            for side, own in zip(found, origins, strict=True)
        )
        row_words = tuple(
            [
                keys[: len(of_rows)] if isinstance(of_rows, range) else [keys[n] for n in of_rows]
                for keys, (_, of_rows) in zip(of_sets, side, strict=True)
            ]
            for of_sets, side in zip(words, found, strict=True)
        )
        return IndexedQuery(query, (targets, attributes), words, row_words, lost, reason)

    @staticmethod
    def stack(queries: "Sequence[IndexedQuery]") -> "IndexedQuery":
        """One batch (Q, ...) of queries with equal numbers of sets, padded to the largest set."""
        templates = [query.template for query in queries]
        if not queries or len(set(templates)) > 1:
            raise ValueError(f"queries: got {len(queries)} with the templates {templates}, wanted equal templates")
        targets, attributes = map(Side.stack, zip(*(query.sides for query in queries), strict=True))
        listed = ([getattr(q, name) for q in queries] for name in ("words", "row_words", "lost", "reason"))
        return IndexedQuery([q.query for q in queries], (targets, attributes), *listed)

    @staticmethod
    def of_sets(
        rows: Tensor,
        mask: Tensor,
        lengths: np.ndarray,
        targets: Sequence[Numbers],
        attributes: Sequence[Numbers],
        words: Tensor | None = None,
    ) -> "IndexedQuery":
        # rows, mask, words: (S, W)  lengths: (S,)
        """A batch of nameless queries; each takes sets of one table by number, all of them equally many."""
        first, second = (Side.choose(rows, mask, lengths, chosen, words) for chosen in (targets, attributes))
        return IndexedQuery(None, (first, second))

    @property
    def template(self) -> tuple[int, int]:
        targets, attributes = self.sides
        return len(targets.longest), len(attributes.longest)

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

    def sets(self, vectors: Tensor, template: Forms | None = None) -> tuple[Vectors, ...]:
        """The embeddings, in the order in which metrics take them: targets, then attributes.

        Shapes: vectors: (..., V, D) -> per set (..., W, D) at its own width; a side of "n": (..., n, W, D).

        A `WordSet` where a set is padded or a word has several rows, of templates, contexts or forms; else a tensor.

        `template` says how a side comes: a number as one tensor per set, "n" as one stack of sets, "joined" as one set
        of all its words, "distinct" as one set in which a word of several sets counts once (by its mask). Default:
        one tensor per set.
        """
        forms = self._forms(template)
        return tuple(found for side, form in zip(self.sides, forms, strict=True) for found in side.sets(vectors, form))

    def with_words_identified(self) -> "IndexedQuery":
        """Return the query with target words that have the same numbers in every query; see `word_keys`."""
        targets, attributes = self.sides
        return replace(self, sides=(targets.identified(self.row_words[0]), attributes))

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

    def _forms(self, template: Forms | None) -> Forms:
        own = self.template
        if template is None or template == own:
            return own
        if any(form != sets and not isinstance(form, str) for form, sets in zip(template, own, strict=True)):
            raise ValueError(f"template: got {tuple(template)!r} for a query of {own} sets")
        return template


def check_query(query: Any) -> None:
    if not isinstance(query, Query):
        raise TypeError(f"query: got a {type(query).__name__}, wanted a Query")


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def check_word_sets(argument: str, sets: Any) -> list[list[str]]:
    if not _is_list(sets):
        raise TypeError(f"{argument}: got a {type(sets).__name__}, wanted a list of lists of words")
    return [list(check_words(f"{argument}[{i}]", members)) for i, members in enumerate(sets)]


def check_words(argument: str, members: Any) -> Iterator[str]:
    if not _is_list(members):
        raise TypeError(f"{argument}: got a {type(members).__name__}, wanted a list of words")
    for i, word in enumerate(members):
        if not isinstance(word, str):
            raise TypeError(f"{argument}[{i}]: got a {type(word).__name__}, wanted a word (str)")
        yield str(word)


def _names(argument: str, default: str, names: Any, sets: int) -> list[str]:
    if names is None:
        return [f"{default} set {i}" for i in range(sets)]
    names = list(check_words(f"{argument}_names", names))
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
