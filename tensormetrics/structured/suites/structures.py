"""Ready-made dataclasses of information extraction and of AMR graphs, each with its metric."""

from collections.abc import Collection
from dataclasses import dataclass

from ..objects.decorator import metametric
from ..objects.nodes.node import Variable


@metametric
@dataclass(frozen=True)
class Mention:
    """A span of text; whether `right` is inclusive is the user's convention."""

    left: int
    right: int


@metametric
@dataclass(frozen=True)
class Trigger:
    """The mention that expresses an event, and the event's type."""

    mention: Mention
    type: str


@metametric
@dataclass(frozen=True)
class Argument:
    """A participant of an event and its role."""

    mention: Mention
    role: str


@metametric
@dataclass
class Event:
    """An event; the similarity of two events of equal trigger is the number of arguments they share."""

    trigger: Trigger
    args: Collection[Argument]


@metametric
@dataclass
class EventSet:
    """The events of a document."""

    events: Collection[Event]


@metametric
@dataclass(frozen=True)
class Relation:
    """A relation of two mentions."""

    type: str
    subj: Mention
    obj: Mention


@metametric
@dataclass
class RelationSet:
    """The relations of a document."""

    relations: Collection[Relation]


@metametric
@dataclass
class Entity:
    """The mentions of one entity."""

    mentions: Collection[Mention]


@metametric
@dataclass
class EntitySet:
    """The entities of a document; matched one-to-one by the mentions they share."""

    entities: Collection[Entity]


@metametric
@dataclass
class Membership:
    """A mention and the entity that it belongs to."""

    mention: Mention
    entity: Entity


@metametric
@dataclass(frozen=True)
class Prop:
    """A triple of a graph."""

    subj: Variable
    pred: str
    obj: Variable | str


@metametric
@dataclass
class AMR:
    """A graph as triples; the overlap of two graphs is their common triples under the best mapping of variables.

    Args:
        props: Triples, as `read_penman` and `read_triples` return them.

    Example:
        >>> want, wish = (AMR(read_penman(f"(w / {verb} :ARG0 (b / boy))")) for verb in ("want", "wish"))
        >>> AMR.metric.score(want, wish)  # 3 of 4 triples
        3.0
    """

    props: Collection[Prop]
