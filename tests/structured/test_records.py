"""Every kind of record is the dataclass of its fields: TypedDicts, NamedTuples, attrs, msgspec, pydantic, generics."""

import dataclasses
import pickle
import typing
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import pytest
from raising import raises
from test_json_schema import MAKERS
from typing_extensions import NamedTuple, TypedDict  # generic ones before Python 3.11 too

from tensormetrics.structured import Family, derive, dsl, metametric, micro_average

X, Y = TypeVar("X"), TypeVar("Y")
CLOSE = dsl.from_func(lambda a, b: max(0.0, 1 - abs(a - b)))


HINTS = {"name": str, "place": tuple[int, int], "size": Annotated[float, CLOSE]}


@pytest.mark.parametrize("kind", MAKERS)
def test_kinds_of_records_have_equal_scores(kind):
    item = MAKERS[kind]("Item", HINTS)
    doc = MAKERS[kind]("Doc", {"items": list[item], "language": str})

    def made(*rows, language="en"):
        items = [item(name=name, place=place, size=size) for name, place, size in rows]
        return doc(items=items, language=language)

    pred = made(("a", (0, 1), 1.0), ("b", (2, 3), 0.5), ("c", (4, 5), 0.0))
    ref = made(("a", (0, 1), 0.75), ("b", (2, 2), 0.5))
    metric = derive(doc)
    assert metric.score(pred, ref) == 0.75 and metric.score(pred, pred) == 3
    assert metric.score(pred, made(("a", (0, 1), 0.75), language="de")) == 0
    paths = [str(match.pred_path) for match in metric.compute(pred, ref)[1]]
    assert paths[:6] == ["@", "items", "items[0]", "items[0].name", "items[0].place", "items[0].place[0]"]
    decorated = metametric(normalizer="f1")(doc)
    assert decorated is doc and doc.metric.score(pred, ref) == pytest.approx(2 * 0.75 / 5)
    family = Family(derive(list[item]), micro_average(["precision"]), by="name")
    family.update(*([part["items"] if kind == "TypedDict" else part.items] for part in (pred, ref)))
    assert float(family.compute()["precision[a]"]) == 0.75
    with pytest.raises(TypeError, match=r"^preds\[0\]: got 3 of type int, wanted "):
        metric.score(3, ref)
    delattr(doc, "metric")


@pytest.mark.parametrize("kind", [typing.TypedDict, TypedDict], ids=["typing", "typing_extensions"])
def test_typed_dict_optional_keys_may_be_missing(kind):
    class Part(kind, total=False):
        weight: int

    class Whole(Part):
        name: str

    metric = derive(list[Whole])
    bare, full, other = {"name": "a"}, {"name": "a", "weight": 1}, {"name": "a", "weight": 2, "more": [3]}
    table = metric.gram_matrix([[bare], [full]], [[bare], [full], [other]])
    assert table.tolist() == [[1, 0, 0], [0, 1, 0]]
    with raises(TypeError, "refs[0][0]: got a dict without the key 'name', which Whole requires"):
        metric.score([bare], [{"weight": 1}])
    with pytest.raises(TypeError, match="are both dict at run time"):
        derive(list[Part | Whole]).score([], [])
    assert derive(list[Whole | int]).score([bare, 1], [1, bare]) == 2


@dataclass
class Box(Generic[X]):
    value: X
    others: "list[X | None]" = dataclasses.field(default_factory=list)


@dataclass
class Labelled(Box[list[Y]], Generic[Y, X]):  # X is another one than that of Box
    label: X = None


@dataclass
class Numbers(Labelled[int, str]):
    pass


class Couple(NamedTuple, Generic[X]):
    one: X
    two: X


class Wrapped(TypedDict, Generic[X]):
    value: X


def test_derive_generic_records_are_scored():
    assert derive(list[Box[int]]).score([Box(1), Box(2, [3])], [Box(2, [3]), Box(1, [None])]) == 1
    policy = {"policy": "metametric"}  # empty collections are worth 1
    assert derive(list[Box[int]], **policy).score([Box(1), Box(2, [3])], [Box(2, [3]), Box(1)]) == 2
    inner = derive(Box[list[int]])
    assert inner.score(Box([1, 2], [[1], None]), Box([2, 1, 3], [[1], None])) == 4
    assert derive(Couple[Box[str]]).score(
        Couple(Box("a", ["b"]), Box("c", ["d"])), Couple(Box("a", ["b"]), Box("c", ["d"]))
    )
    assert derive(list[Wrapped[list[int]]]).score([{"value": [1, 2]}], [{"value": [2, 2]}]) == 1
    for tp in (Labelled[int, str], Numbers):
        value = (Numbers if tp is Numbers else Labelled)([1, 2], [[3], None], "x")
        other = dataclasses.replace(value, value=[1, 1])
        assert derive(tp).score(value, other) == 1 * 2 and derive(tp).score(value, value) == 4
        assert derive(tp).score(value, dataclasses.replace(value, label="y")) == 0
    metric = pickle.loads(pickle.dumps(derive(list[Box[int]], **policy)))
    assert metric.score([Box(1)], [Box(1)]) == 1
    selected = dsl.dataclass[Box[int]]({"value": ...})
    assert selected.score(Box(1, [2]), Box(1)) == 1


def test_generic_records_of_other_kinds():
    pydantic, attrs = pytest.importorskip("pydantic"), pytest.importorskip("attrs")

    class Model(pydantic.BaseModel, Generic[X]):
        value: X

    @attrs.define
    class Attr(Generic[X]):
        value: X
        note: object = attrs.field(eq=False, factory=object)  # left out

    for kind in (Model, Attr):
        record_type = kind[list[int]]
        assert derive(record_type).score(record_type(value=[1, 2]), record_type(value=[2])) == 1


def test_type_variable_without_argument_raises():
    for tp in (Box, list[Box[X]], X):
        with pytest.raises(TypeError, match="got the type ~X, which has no metric; bind the type variable, as in Box"):
            derive(tp).score(Box(1), Box(1))

    @dataclass
    class Tree(Generic[X]):
        value: X
        below: "list[Tree[X]]"

    with pytest.raises(TypeError, match="recursive type"):
        derive(Tree[int], localns={"Tree": Tree}).score(Tree(1, []), Tree(1, []))
