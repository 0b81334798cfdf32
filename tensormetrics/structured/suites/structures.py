"""Ready-made dataclasses of information extraction and of AMR graphs, each with its metric."""

from collections.abc import Collection
from dataclasses import dataclass

from ..objects.decorator import metametric
from ..objects.variable import Variable


@metametric
@dataclass(frozen=True)
class Mention:
    """A span of text; whether `right` belongs to it is the user's convention."""

    left: int
    right: int


@metametric
@dataclass(frozen=True)
class Trigger:
    """What tells an event, and the event's type."""

    mention: Mention
    type: str


@metametric
@dataclass(frozen=True)
class Argument:
    """What takes part in an event, and as what."""

    mention: Mention
    role: str


@metametric
@dataclass
class Event:
    """Two events are worth the number of arguments they share, if they have the same trigger."""

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
    """How two mentions are related."""

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
    """Mentions of one thing."""

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
    """A graph as its triples; two are worth the triples they share under the best mapping of their variables."""

    props: Collection[Prop]
