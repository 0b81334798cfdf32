"""Derivation of nodes from types: a table of the rules, unions and values, errors; arguments of the decorator."""

import collections
import enum
import typing
from collections.abc import Collection, Iterable, Mapping, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NewType, Optional, Union

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.structured import derive, dsl, metametric, metric_of
from tensormetrics.structured.extend import StructuredMetric
from tensormetrics.structured.objects.nodes.node import Normalized, Product, UnionNode

Key = NewType("Key", int)
Names = NewType("Names", list[str])


class Colour(enum.Enum):
    RED = 1


@dataclass
class Empty:
    pass


@dataclass
class Flat:
    constant: ClassVar[int] = 3
    extra: InitVar[int] = 0
    a: int = 0
    b: str = ""
    note: str = field(default="", compare=False)


@metametric(normalizer="f1")
@dataclass
class Decorated:
    xs: list[int]


@dataclass
class Undecorated(Decorated):
    y: int = 0


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Late:
    xs: "list[Later]"


@dataclass
class Later:
    pep: "int | None"


COLLECTIONS = list[int], set[int], frozenset[int], tuple[int, ...], Names, Iterable[int], Collection[int], Sequence[int]
COLLECTIONS += MutableSequence[int], AbstractSet[int], collections.deque[int], collections.Counter[str]


def shape(node):
    name = type(node).__name__.removesuffix("Node")
    if isinstance(node, Product):
        return f"Product({', '.join(map(shape, node.nodes))})"
    if isinstance(node, UnionNode):
        return f"Union({', '.join(map(shape, node.cases))})"
    if isinstance(node, Normalized):
        return f"Normalized({shape(node.inner)}, {node.normalizer.name})"
    return f"{name}({shape(node.inner)})" if hasattr(node, "inner") else name


@pytest.mark.parametrize(
    ("tp", "expected"),
    [
        *((tp, "Leaf") for tp in (int, str, bytes, bool, float, complex, None, Literal["a", 1], Colour, Decimal, Key)),
        (Empty, "Product()"),
        (Flat, "Product(Leaf, Leaf)"),
        (Point, "Product(Leaf, Leaf)"),
        (Late, "Product(Set(Product(Union(Leaf, Leaf))))"),
        (Decorated, "Normalized(Product(Set(Leaf)), f1)"),
        (Undecorated, "Product(Set(Leaf), Leaf)"),
        (Annotated[list[int], "a comment"], "Set(Leaf)"),
        (
            Annotated[list[int], 3, dsl.auto[list[int], "<->", "p"], dsl.discrete[int]],
            "Normalized(Set(Leaf), precision)",
        ),
        (list[Annotated[dict, dsl.discrete[dict]]], "Set(Leaf)"),
        (Optional[int], "Union(Leaf, Leaf)"),  # noqa: UP045
        (Union[int, list[str]], "Union(Leaf, Set(Leaf))"),  # noqa: UP007
        (int | list[str], "Union(Leaf, Set(Leaf))"),
        (tuple[int, list[str]], "Product(Leaf, Set(Leaf))"),
        (tuple[()], "Product()"),
        *((tp, "Set(Leaf)") for tp in COLLECTIONS),
        (typing.List[int], "Set(Leaf)"),  # noqa: UP006
        (dict[str, list[int]], "Set(Product(Leaf, Set(Leaf)))"),
        (Mapping[str, int], "Set(Product(Leaf, Leaf))"),
        (collections.defaultdict[str, int], "Set(Product(Leaf, Leaf))"),
    ],
    ids=str,
)
def test_derive_types_give_expected_nodes(tp, expected):
    assert shape(derive(tp).node()) == expected


REMEDY = (
    "which has no metric; write Annotated[..., dsl.discrete[...]] to compare it by ==, "
    "or a typed form such as list[int]"
)


class Identity:
    pass


class Loud(typing.Protocol):
    def shout(self) -> str: ...


class Unhashable:
    def __eq__(self, other):
        return True


UNSUPPORTED = list, dict, tuple, set, Any, object, Loud, np.ndarray, torch.Tensor, Identity, Unhashable


@pytest.mark.parametrize("tp", UNSUPPORTED, ids=str)
def test_types_without_a_metric(tp):
    path = str(tuple[int, tp]).replace("typing.", "")
    with raises(TypeError, f"{path}[1]: got the type {tp.__name__}, {REMEDY}"):
        derive(tuple[int, tp]).score((1, 2), (1, 2))


def test_derive_recursive_types_raise():
    path = "Tree.branches[*].trees[*]: got the recursive type Tree -> Branch -> Tree"
    with raises(TypeError, f"{path}; use dsl.graph_matching over its nodes"):
        derive(Tree).node()


def test_classes_that_hold_each_other():
    path = "Chicken: got the recursive type Chicken -> ... -> Chicken"
    with raises(TypeError, f"{path}; use dsl.graph_matching over its nodes"):
        Chicken.metric.score(None, None)


@metametric
@dataclass
class Chicken:
    eggs: "list[Egg]"


@metametric
@dataclass
class Egg:
    chicken: Chicken | None


@dataclass
class Branch:
    trees: "list[Tree]"


@dataclass
class Tree:
    branches: list[Branch]


def test_derive_unknown_annotation_names_raise():
    @dataclass
    class Odd:
        x: int
        xs: "list[Nowhere]"  # noqa: F821

    with raises(TypeError, "Odd.xs: the name 'Nowhere' is unknown; define it, or give it as localns"):
        derive(Odd).node()
    assert shape(derive(Odd, localns={"Nowhere": int}).node()) == "Product(Leaf, Set(Leaf))"


def test_names_of_the_frame():
    @dataclass
    class Inner:
        x: int

    @metametric(normalizer="f1")
    @dataclass
    class Outer:
        xs: "list[Inner]"
        ys: "list[str] | None" = None

    assert Outer.metric.score(Outer([Inner(1), Inner(2)]), Outer([Inner(1), Inner(3)])) == 0.5


def test_metametric_invalid_classes_raise():
    class Undecorated:
        pass

    with raises(TypeError, f"metametric: got {Undecorated!r}, wanted a dataclass; write @metametric above @dataclass"):
        metametric(Undecorated)

    @dataclass
    class Named:
        metric: int

    with raises(TypeError, "Named.metric: got a field of this name, wanted none; rename the field"):
        metametric()(Named)


def test_metametric_subclasses_have_separate_metrics():
    @metametric(normalizer="none")
    @dataclass
    class Derived(Decorated):
        y: int = 0

    assert Derived.metric.score(Derived([1, 2], 1), Derived([1, 3], 1)) == 1.0
    assert Derived.metric.score(Derived([1, 2], 1), Derived([1, 3], 2)) == 0.0
    assert Decorated.metric.score(Derived([1], 1), Decorated([1])) == 1.0  # read by the fields of the declared class


def test_nested_metrics_keep_their_normalizers():
    metric = derive(list[Decorated])
    pred, ref = [Decorated([1, 2]), Decorated([7])], [Decorated([1, 3]), Decorated([8])]
    assert metric.score(pred, ref) == 0.5
    assert metric.score_self(pred) == 2.0


def test_fields_left_out():
    metric = derive(Flat)
    assert metric.score(Flat(0, 1, "b", "x"), Flat(5, 1, "b", "y")) == 1.0
    assert derive(Empty).score(Empty(), Empty()) == 1.0


def test_derive_unions_score_by_case():
    metric = derive(list[int | bool | str | list[int] | None])
    assert metric.score([1.0, 2, "a", None, [3, 4]], [1, 2, "a", None, [4]]) == 5.0
    assert metric.score([True], [1]) == 0.0  # a separate case
    assert metric.score_self([[1, 2, 3]]) == 3.0  # the case's own, so that precision is at most 1
    with raises(TypeError, "preds[0][0]: got True of type bool, wanted int | str"):  # it is no int
        derive(list[int | str]).score([True], [1])
    literal = derive(list[Literal["a", 1] | str | int])
    assert literal.score(["a", 1, "b", 2], ["a", 1, "b", 2]) == 4.0
    assert literal.score([1.0], [1]) == 1.0 and literal.score([2], [1]) == 0.0


def test_unions_with_indistinguishable_cases_raise():
    union = list[int] | list[str]
    both = f"{union}: list[int] and list[str] of {union} are both list at run time"
    with raises(TypeError, f"{both}; wrap one of them in a dataclass"):
        derive(union).node()


def test_counters_and_mappings():
    Counts = collections.Counter
    assert derive(Counts[str], constraint="<->").score(Counts(a=2, b=1), Counts(a=1, b=3)) == 2.0
    assert derive(dict[str, list[int]]).score({"a": [1, 2], "b": [3]}, {"a": [2], "b": [4]}) == 1.0


@pytest.mark.parametrize(
    ("arrow", "ratio", "overlap"), [("<->", "1:1", 1), ("->", "1:*", 1), ("<-", "*:1", 3), ("~", "*:*", 3)]
)
def test_metametric_constraint_spellings_agree(arrow, ratio, overlap):
    """One predicted item and three equal reference items."""
    for spelling in (arrow, ratio):

        @metametric(constraint=spelling)
        @dataclass
        class Bag:
            items: list[int]

        assert Bag.metric.score(Bag([1]), Bag([1, 1, 1])) == overlap


def test_metric_of_returns_the_attribute():
    @metametric
    @dataclass
    class Bag:
        items: list[str]

    assert type(metric_of(Bag)) is StructuredMetric and metric_of(Bag) is Bag.metric
    for tp in (int, "Bag"):
        with pytest.raises(TypeError, match=r"^metric_of: got .*, which has no metric; write @metametric above it, or"):
            metric_of(tp)
