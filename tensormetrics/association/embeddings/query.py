"""Word sets to compare: `Query` in words, `IndexedQuery` in rows of an embedding table."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..sets.word_sets import Vectors
from .indexed_sets import IndexedSets, Ints, Layout, padded, row_word_ids

Template = tuple[int | Literal["n"], int | Literal["n"]]  # (target sets, attribute sets); "n" is one or more
Layouts = tuple[Layout, Layout]


class Query:
    """Target and attribute sets of words, as association tests compare them.

    Sets are lists, tuples or arrays of `str`; they are copied. No model can score a query with an empty set.

    Args:
        target_sets: Sets of target words, at least one.
        attribute_sets: Sets of attribute words, or [].
        target_sets_names, attribute_sets_names: Distinct names, by default "Target set 0", "Attribute set 0", ...

    Raises:
        TypeError: If a set is no list of texts.
        ValueError: If there is no target set, or numbers or names do not fit.

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
        """Return one query per choice of `template` sets, in lexicographic order, targets outermost; "n" keeps all."""
        if not isinstance(template, tuple | list) or len(template) != 2:
            raise TypeError(f"template: got {template!r}, wanted a pair (target sets, attribute sets)")
        targets, attributes = (
            list(combinations(range(available), _cardinality(role, requested, available, self.query_name)))
            for role, requested, available in zip(("target", "attribute"), template, self.template, strict=True)
        )
        columns: Any = self.target_sets, self.attribute_sets, self.target_sets_names, self.attribute_sets_names
        choices = ((t, a, t, a) for t in targets for a in attributes)
        return [type(self)(*([x[i] for i in n] for x, n in zip(columns, chosen, strict=True))) for chosen in choices]

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
    """Query as rows of an embedding table: words are looked up once, then only tensors are read.

    `targets` (..., T, W) and `attributes` (..., A, W) are int64 rows, with `target_mask`, `attribute_mask`: True = a
    word. `words` and `lost` hold, for targets and attributes, set by set, the keys found and the words without a key;
    `row_words` holds the key of each row, as a key may have several rows. An unusable query has a `reason` and no rows,
    so that all its scores are NaN. A batch made by `stack` holds lists of these.
    """

    query: Any  # Query, or a list of them for a batch; words, row_words, lost and reason likewise
    roles: tuple[IndexedSets, IndexedSets]
    words: Any = None
    row_words: Any = None
    lost: Any = None
    reason: Any = None

    @staticmethod
    def of(query: Query, rows: Any, matches: Any, reason: str | None, device: Any) -> "IndexedQuery":
        """Create a query from the rows of each set with the key index of each row, and the matches of each set."""
        roles = [list(zip(*pair, strict=True)) for pair in zip(rows, matches, strict=True)]
        targets, attributes = (
            IndexedSets.of([r for (r, _), _ in sets], [row_word_ids(k, m.origins) for (_, k), m in sets], device)
            for sets in roles
        )
        row_words = tuple([[match.keys[n] for n in key_indices] for (_, key_indices), match in sets] for sets in roles)
        words, lost = (tuple([getattr(m, name) for m in sets] for sets in matches) for name in ("keys", "lost"))
        return IndexedQuery(query, (targets, attributes), words, row_words, lost, reason)

    @staticmethod
    def stack(queries: "Sequence[IndexedQuery]") -> "IndexedQuery":
        """Stack queries with equal numbers of sets to a batch (Q, ...), padded to the largest set."""
        templates = [query.template for query in queries]
        if not queries or len(set(templates)) > 1:
            raise ValueError(f"queries: got {len(queries)} with the templates {templates}, wanted equal templates")
        targets, attributes = map(IndexedSets.stack, zip(*(query.roles for query in queries), strict=True))
        fields = ([getattr(q, name) for q in queries] for name in ("words", "row_words", "lost", "reason"))
        return IndexedQuery([q.query for q in queries], (targets, attributes), *fields)

    @staticmethod
    def of_sets(
        rows: Tensor,
        mask: Tensor,
        lengths: np.ndarray,
        targets: Sequence[Ints],
        attributes: Sequence[Ints],
        words: Tensor | None = None,
    ) -> "IndexedQuery":
        # rows, mask, words: (S, W)  lengths: (S,)
        """Create a batch of unnamed queries from set indices of one table, equally many for each query."""
        first, second = (
            IndexedSets.choose(rows, mask, lengths, set_indices, words) for set_indices in (targets, attributes)
        )
        return IndexedQuery(None, (first, second))

    @property
    def template(self) -> tuple[int, int]:
        targets, attributes = self.roles
        return len(targets.longest), len(attributes.longest)

    @property
    def targets(self) -> Tensor:
        return self.roles[0].stacked()[0]

    @property
    def attributes(self) -> Tensor:
        return self.roles[1].stacked()[0]

    @property
    def target_mask(self) -> Tensor:
        return self._mask(0)

    @property
    def attribute_mask(self) -> Tensor:
        return self._mask(1)

    def sets(self, vectors: Tensor, template: Layouts | None = None) -> tuple[Vectors, ...]:
        """Return the embeddings in the order of a metric's arguments: targets, then attributes.

        Shapes: vectors: (..., V, D) -> per set (..., W, D) at its own width; for "n": (..., n, W, D).

        A set is a `WordSet` if it is padded or a word has several rows (templates, contexts or forms), else a tensor.

        `template` has a layout for the target sets and one for the attribute sets: a number for one tensor per set, "n"
        for one stack of sets, "joined" for one set of all words, "distinct" for one set in which a word of several sets
        counts once (by its mask). Default: one tensor per set.
        """
        expected = self.template
        layouts = template or expected
        if any(layout != sets and not isinstance(layout, str) for layout, sets in zip(layouts, expected, strict=True)):
            raise ValueError(f"template: got {tuple(layouts)!r} for a query of {expected} sets")
        pairs = zip(self.roles, layouts, strict=True)
        return tuple(word_set for indexed, layout in pairs for word_set in indexed.sets(vectors, layout))

    def pools(self, role: int, i: int) -> tuple[Tensor, Tensor]:
        # ->  rows (W, K) int64, mask (W, K)
        """Return the rows of each word of set `i` separately; `role` is 0 for targets, 1 for attributes."""
        sets, members = self.roles[role], defaultdict(list)
        rows = sets.rows.split_with_sizes(sets.longest, -1)[i]
        words = range(len(rows)) if sets.words is None else sets.words.split_with_sizes(sets.longest, -1)[i].tolist()
        for position, word in enumerate(words):
            members[word].append(position)
        positions, mask = padded(list(members.values()), rows.device)
        return rows[positions], mask

    def _mask(self, role: int) -> Tensor:
        rows, mask = self.roles[role].stacked()
        return torch.ones_like(rows, dtype=torch.bool) if mask is None else mask


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


def _cardinality(role: str, requested: Any, available: int, query_name: str) -> int:
    if isinstance(requested, str) and requested == "n":
        return available
    if not isinstance(requested, int) or isinstance(requested, bool):
        raise TypeError(f"template: got {requested!r} {role} sets, wanted an integer or 'n'")
    minimum = 1 if role == "target" else 0
    if not minimum <= requested <= available:
        raise ValueError(
            f"template: got {requested} {role} sets, wanted {minimum} to {available}, as many as {query_name!r} has"
        )
    return requested
