"""The relations between predicted and reference items that a matching may be."""

from enum import Enum


class Constraint(Enum):
    """Limits on how often an item may be matched, each spelled as an arrow or a ratio.

    | spellings    | predicted item | reference item | relation                                   |
    |--------------|----------------|----------------|--------------------------------------------|
    | `<->`, `1:1` | at most once   | at most once   | partial bijection                          |
    | `->`, `1:*`  | at most once   | reusable       | partial function from predicted to reference |
    | `<-`, `*:1`  | reusable       | at most once   | partial function from reference to predicted |
    | `~`, `*:*`   | reusable       | reusable       | any relation                               |

    `->` and `1:*` are the same; `<-` and `*:1` are the same. The code of metametric 0.3.0a0 reads the two ratios the
    other way round, and so does `tensormetrics.compat.metametric`; its arrows mean the same.
    """

    ONE_TO_ONE = "<->"
    ONE_TO_MANY = "->"
    MANY_TO_ONE = "<-"
    MANY_TO_MANY = "~"

    @property
    def once(self) -> tuple[bool, bool]:
        """Whether a predicted, and a reference item, is matched at most once."""
        one = Constraint.ONE_TO_ONE
        return self in (one, Constraint.ONE_TO_MANY), self in (one, Constraint.MANY_TO_ONE)

    @classmethod
    def parse(cls, text: "str | Constraint") -> "Constraint":
        """Parse the spelling of a constraint; a Constraint is returned unchanged."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str) or text not in _SPELLINGS:
            raise ValueError(f"constraint: got {text!r}, wanted one of {', '.join(map(repr, _SPELLINGS))}")
        return _SPELLINGS[text]


_SPELLINGS = {constraint.value: constraint for constraint in Constraint} | {
    "1:1": Constraint.ONE_TO_ONE,
    "1:*": Constraint.ONE_TO_MANY,
    "*:1": Constraint.MANY_TO_ONE,
    "*:*": Constraint.MANY_TO_MANY,
}
