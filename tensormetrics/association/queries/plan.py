"""Many queries as numbers: every distinct word set stands once, and a query says which of them it takes."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from ..embeddings.indexed_sets import Ints
from ..embeddings.query import Query, Template, joined

Names = tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Queries of distinct names; query `i` takes sets `targets[i]` and `attributes[i]` under the names `labels[i]`."""

    names: list[str]
    sets: list[list[str]]
    targets: list[Ints]
    attributes: list[Ints]
    labels: list[tuple[Names, Names]]

    def query(self, i: int) -> Query:
        targets, attributes = ([self.sets[s] for s in side[i]] for side in (self.targets, self.attributes))
        return Query(targets, attributes, *map(list, self.labels[i]))


def plan_queries(queries: Sequence[Query]) -> Plan:
    """The queries as they are. ValueError if different ones have one name."""
    plan, clashes = _plan(queries, ("n", "n"))
    if clashes:
        raise ValueError(f"queries: got different queries named {clashes}, wanted distinct names")
    return plan


def plan_subqueries(queries: Sequence[Query], template: Template, metric: str) -> Plan:
    """All choices of `template` sets from each query, equal ones once; warns of queries and choices left out."""
    least = [1 if size == "n" else size for size in template]
    large = [query for query in queries if query.template[0] >= least[0] and query.template[1] >= least[1]]
    if len(large) < len(queries):
        small = [query.query_name for query in queries if query.template[0] < least[0] or query.template[1] < least[1]]
        warnings.warn(
            f"queries: {small} have fewer sets than the template {template} of the metric {metric}, and are left out",
            UserWarning,
            stacklevel=3,
        )
    if not large:
        raise ValueError(f"queries: got none with the sets that the template {template} of the metric {metric} takes")
    plan, clashes = _plan(large, template)
    if clashes:
        warnings.warn(
            f"queries: different sub-queries are named {clashes}; the first of each name is kept",
            UserWarning,
            stacklevel=3,
        )
    return plan


def _plan(queries: Sequence[Query], template: Template) -> tuple[Plan, list[str]]:
    """The plan, and the names under which other queries stand already."""
    numbers: dict[tuple[str, ...], int] = {}
    found: dict[str, tuple] = {}
    clashes: dict[str, None] = {}
    for query in queries:
        sides = []
        for sets, names, size in (
            (query.target_sets, query.target_sets_names, template[0]),
            (query.attribute_sets, query.attribute_sets_names, template[1]),
        ):
            number = [numbers.setdefault(tuple(members), len(numbers)) for members in sets]
            size = len(sets) if size == "n" else size
            chosen = zip(combinations(number, size), combinations(names, size), strict=True)
            sides.append([(numbers_of, labels, joined(labels)) for numbers_of, labels in chosen])
        for targets, target_labels, target_name in sides[0]:
            for attributes, attribute_labels, attribute_name in sides[1]:
                name = f"{target_name} wrt {attribute_name}" if attribute_name else target_name
                one = (targets, attributes, (target_labels, attribute_labels))
                if found.setdefault(name, one) != one:
                    clashes[name] = None
    targets, attributes, labels = map(list, zip(*found.values(), strict=True))
    return Plan(list(found), list(map(list, numbers)), targets, attributes, labels), list(clashes)
