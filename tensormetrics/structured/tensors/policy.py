"""Conventions for empty collections, divisions by zero and repeated items."""

from dataclasses import dataclass, replace
from numbers import Real

from torch import Tensor

from ...core.arguments import checks


@dataclass(frozen=True)
class Policy:
    """Three conventions in which scorers differ.

    `empty`: "zero", an empty collection has overlap 0 with itself, or "one", it has 1, also with another empty one.
    `zero_division`: the value of a ratio with denominator 0, a number or "agree" (1 if both self-overlaps are 0, else
    0); macro averages skip NaN. "metametric" is 0 for an F-score and NaN otherwise. `duplicates`: "multiset", equal
    items are counted as often as they occur; "set", once if items are only compared by equality; "set_cross", plain
    values matched one-to-one are counted once in the cross overlap.
    """

    empty: str = "zero"
    zero_division: float | str = 0.0
    duplicates: str = "multiset"

    def __post_init__(self) -> None:
        checks.check_choice("empty", self.empty, ("zero", "one"))
        check_zero_division(self.zero_division)
        checks.check_choice("duplicates", self.duplicates, ("multiset", "set", "set_cross"))

    @classmethod
    def parse(
        cls,
        preset: "str | Policy",
        *,
        empty: str | None = None,
        zero_division: float | str | None = None,
        duplicates: str | None = None,
    ) -> "Policy":
        """Return a Policy or preset ("conventional", "agree", "metametric"), updated by the arguments that are set."""
        if not isinstance(preset, Policy):
            checks.check_choice("policy", preset, tuple(_PRESETS))
            preset = _PRESETS[preset]
        given = {"empty": empty, "zero_division": zero_division, "duplicates": duplicates}
        return replace(preset, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]

    def count_empty(
        self,
        cross: Tensor,
        pred: Tensor,
        ref: Tensor,
        n_pred: Tensor,
        n_ref: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Apply the convention on empty collections to overlaps.

        Shapes: cross: (...); pred: (...); ref: (...); n_pred: (...); n_ref: (...) -> cross, pred, ref: (...).
        """
        if self.empty == "zero":
            return cross, pred, ref
        no_pred, no_ref = n_pred == 0, n_ref == 0
        return cross.masked_fill(no_pred & no_ref, 1), pred.masked_fill(no_pred, 1), ref.masked_fill(no_ref, 1)


def check_zero_division(value: float | str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) and value not in ("agree", "metametric"):
        raise ValueError(f"zero_division: got {value!r}, wanted a number, 'agree' or 'metametric'")


_PRESETS = {
    "conventional": Policy(),
    "agree": Policy(zero_division="agree"),
    "metametric": Policy("one", "metametric", "set_cross"),
}
