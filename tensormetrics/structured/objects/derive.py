"""Derivation of the plan of a metric from a type."""

import dataclasses
import enum
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from torch import Tensor
from typing_extensions import is_typeddict

from ..tensors.constraints import Constraint
from ..tensors.policy import Policy
from ..types.records import class_of, field_names, is_record, is_tuple, kind_of, reader, resolve_alias, resolved_types
from ..types.values import INVALID
from .columns import LeafType, RowPath, as_list, elements_of, pairs_of, record_check
from .metric import StructuredMetric
from .nodes.function import Reader
from .nodes.latent import LatentSet, VariableLeaf
from .nodes.node import Fields, LeafNode, Node, Product, UnionNode, Variable
from .nodes.set import Matched, Set

SCALARS = (str, bytes, bool, int, float, complex, type(None))
SWAPPED: dict[type, type] = {list: tuple, tuple: list}  # JSON has one of them
REMEDY = "write Annotated[..., dsl.discrete[...]] to compare it by ==, or a typed form such as list[int]"


class TypePlan:
    """Function from a policy to the nodes of a type. names: names in scope at the type, not pickled.

    decorated: the type is a dataclass under `@metametric`.
    """

    def __init__(self, tp: Any, constraint: Constraint, names: Mapping[str, Any] | None, decorated: bool) -> None:
        self.tp, self.constraint, self.decorated = tp, constraint, decorated
        self._scope = names  # no attribute `names`, which `described` would show: its values may differ between ranks
        self.at_work = False

    def __call__(self, policy: Policy) -> Node:
        derivation, name = Derivation(self.constraint, policy, self._scope), name_of(self.tp)
        if self.at_work:
            raise recursion_error(name, [name, "...", name])
        self.at_work = True
        try:
            return (derivation.record if self.decorated else derivation.node)(self.tp, name)
        finally:
            self.at_work = False

    def __repr__(self) -> str:
        return name_of(self.tp)

    def __reduce__(self) -> tuple:
        return TypePlan, (self.tp, self.constraint, None, self.decorated)

    def __deepcopy__(self, memo: dict) -> "TypePlan":
        return self


@dataclasses.dataclass
class Derivation:
    """Derivation of nodes from the types below one class, by the constraint and policy of collections."""

    constraint: Constraint
    policy: Policy
    localns: Mapping[str, Any] | None = None
    stack: tuple[type, ...] = ()

    def node(self, tp: Any, path: str) -> Node:
        """Derive the node of a type; that of a decorated class has the normalizer of its metric."""
        if (tp := resolve_alias(tp)) is Variable:
            return VariableLeaf()
        metric = metric_of_class(tp)
        return getattr(self, kind_of(tp))(tp, path) if metric is None else metric.nested(self.policy)

    def scalar(self, tp: Any, path: str) -> Node:
        if typing.get_origin(tp) is typing.Literal or tp is None or tp in SCALARS or is_discrete(tp):
            return LeafNode(LeafType(tp))
        remedy = "bind the type variable, as in Box[int]" if isinstance(tp, typing.TypeVar) else REMEDY
        raise TypeError(f"{path}: got the type {name_of(tp)}, which has no metric; {remedy}")

    def items(self, tp: Any, path: str, items: Callable = as_list, position: str = "*") -> Node:
        if not (arguments := typing.get_args(tp)):
            return self.scalar(tp, path)
        return self.set(self.node(arguments[0], f"{path}[{position}]"), items)

    def counter(self, tp: Any, path: str) -> Node:
        return self.items(tp, path, elements_of, "0")

    def set(self, inner: Node, items: Callable) -> Matched:
        return (LatentSet if inner.has_variables else Set).under(self.policy, inner, items, self.constraint)

    def annotated(self, tp: Any, path: str) -> Node:
        for extra in tp.__metadata__:
            if isinstance(extra, StructuredMetric):
                return extra.nested(self.policy)
        return self.node(tp.__origin__, path)

    def record(self, tp: Any, path: str) -> Product:
        nodes = {
            names: (read, inner.node(hint, part_path))
            for names, read, hint, part_path, inner in self.components(tp, path)
        }
        product = Product(nodes, record_check(tp))
        if product.has_variables and product.binds:
            raise TypeError(
                f"{path}: got variables both inside and outside of a collection; wrap the latter in a collection"
            )
        return product

    def number_readers(self, tp: Any, path: str) -> list[list[Reader]]:
        """Return the readers of each number of a value, in order."""
        tp = resolve_alias(tp.__origin__ if typing.get_origin(tp) is typing.Annotated else tp)
        if tp in (int, float, bool):
            return [[]]
        if not is_record(tp):
            raise TypeError(f"{path}: got the type {name_of(tp)}, wanted numbers, or records of them, for tensor_func")
        return [
            [(names, read), *readers]
            for names, read, hint, part_path, inner in self.components(tp, path)
            for readers in inner.number_readers(hint, part_path)
        ]

    def components(self, tp: Any, path: str) -> Iterator[tuple[tuple, Callable, Any, str, "Derivation"]]:
        """Yield the path suffix, reader, type, path and derivation of each component of a record."""
        if tp in self.stack:
            raise recursion_error(path, map(name_of, (*self.stack[self.stack.index(tp) :], tp)))
        inner = dataclasses.replace(self, stack=(*self.stack, tp))
        if is_tuple(tp):
            for n, hint in enumerate(typing.get_args(tp)):
                yield (n,), itemgetter(n), hint, f"{path}[{n}]", inner
            return
        hints = resolved_types(tp, self.localns or {})
        for name in field_names(tp):
            yield (name,), reader(tp, name), hints[name], f"{path}.{name}".removeprefix("."), inner

    def mapping(self, tp: Any, path: str) -> Node:
        if not typing.get_args(tp):
            return self.scalar(tp, path)
        named = enumerate(zip(("key", "value"), typing.get_args(tp), strict=True))
        pair: Fields = {(name,): (itemgetter(n), self.node(part, f"{path}[*].{name}")) for n, (name, part) in named}
        return self.set(Product(pair, no_check), pairs_of)

    def union(self, tp: Any, path: str) -> Node:
        return union_of(tp, [self.node(case, path) for case in typing.get_args(tp)], path)


def union_of(tp: Any, nodes: list[Node], path: str) -> UnionNode:
    """Build a union of the nodes of its cases; raise a TypeError if values do not determine the case."""
    cases = typing.get_args(tp)
    runtime = [runtime_classes(case) for case in cases]
    for n, classes in enumerate(runtime):
        for earlier in range(n):
            if shared := [c for c in classes if c in runtime[earlier] and not isinstance(c, tuple)]:
                both = f"{name_of(cases[earlier])} and {name_of(cases[n])}"
                raise TypeError(
                    f"{path}: {both} of {name_of(tp)} are both {shared[0].__name__} at run time; "
                    "wrap one of them in a dataclass"
                )
    leaf_types = {n: node.type for n, node in enumerate(nodes) if isinstance(node, LeafNode) and node.type is not None}
    return UnionNode(nodes, make_chooser(runtime, leaf_types), name_of(tp))


def recursion_error(path: str, names: Iterable[str]) -> TypeError:
    return TypeError(f"{path}: got the recursive type {' -> '.join(names)}; use dsl.graph_matching over its nodes")


def metric_of_class(tp: Any) -> StructuredMetric | None:
    """Return the metric of a decorated class, None for other types."""
    names = vars(tp) if isinstance(tp, type) else {}
    attributes = (names.get(name) for name in ("metric", "latent_metric"))
    return next((metric for metric in attributes if isinstance(metric, StructuredMetric)), None)


def no_check(values: Sequence[Any], where: RowPath) -> None:
    """Accept all values."""


def is_discrete(tp: Any) -> bool:
    """Return whether a type is hashable and defines its own equality."""
    if not isinstance(tp, type) or tp in (object, type, tuple, frozenset) or issubclass(tp, Tensor):
        return False
    if issubclass(tp, enum.Enum):
        return True
    return tp.__hash__ is not None and tp.__eq__ is not object.__eq__ and not getattr(tp, "_is_protocol", False)


def runtime_classes(case: Any) -> list[Any]:
    """Return the classes of the values of a case; for a Literal its members, as (type, value)."""
    case = resolve_alias(case)
    origin = typing.get_origin(case)
    if origin is typing.Annotated:
        return runtime_classes(case.__origin__)
    if origin is typing.Literal:
        return [(type(member), member) for member in typing.get_args(case)]
    if is_typeddict(class_of(case)):
        return [dict]
    return [origin or (type(None) if case is None else case)]


def make_chooser(runtime: list[list[Any]], leaf_types: Mapping[int, LeafType]) -> Callable[[Any], int | None]:
    """Build the function that returns the case of a value.

    It is the Literal with an equal member of the same type, else the exact class, else the first scalar type that reads
    the value, else the first class by isinstance. JSON writes a tuple as a list.
    """
    members = {member: n for n, classes in enumerate(runtime) for member in classes if isinstance(member, tuple)}
    classes = {cls: n for n, case_classes in enumerate(runtime) for cls in case_classes if not isinstance(cls, tuple)}
    others = {cls: n for cls, n in classes.items() if n not in leaf_types}

    def choose(value: Any) -> int | None:
        kind = type(value)
        try:
            if members and (n := members.get((kind, value))) is not None:
                return n
        except TypeError:  # unhashable values are no members
            pass
        if (n := classes.get(kind)) is not None:
            return n
        for n, leaf_type in leaf_types.items():
            if leaf_type.read(value) is not INVALID:
                return n
        if kind in SWAPPED and (n := classes.get(SWAPPED[kind])) is not None:
            return n
        return next((n for cls, n in others.items() if isinstance(value, cls)), None)

    return choose


def name_of(tp: Any) -> str:
    return tp.__name__ if isinstance(tp, type) and not typing.get_args(tp) else str(tp).replace("typing.", "")
