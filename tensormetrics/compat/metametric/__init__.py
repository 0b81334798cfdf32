"""Names of metametric 0.3.0a0 and of its modules, flat, and `dsl`, on `structured`, with the values of metametric."""

from ...structured import Prop as Prop
from ...structured import Relation as Relation
from ...structured import RelationSet as RelationSet
from ...structured.extend import Variable as Variable
from . import dsl as dsl
from .core import *  # noqa: F403
from .dsl import *  # noqa: F403
from .metrics import *  # noqa: F403
from .suites import *  # noqa: F403
