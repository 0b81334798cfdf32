"""Ratios of a cross overlap to the self-overlaps of its two sides."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch
from torch import Tensor

from ... import _checks
from ..._checks import takes_arrays
from . import policy

Side = TypeVar("Side", float, Tensor)


class Normalizer(ABC):
    """A ratio of overlaps. Subclasses give `name` and `ratio`; what 0/0 is worth stays with `normalize`.

    `reads` are the self-overlaps that the ratio needs: the others may be 0, and are not computed for objects.

    >>> class OverSmaller(Normalizer):
    ...     name = "over-smaller"
    ...
    ...     def ratio(self, cross, pred, ref):
    ...         return cross, pred.minimum(ref)
    >>> normalize(torch.tensor(3), torch.tensor(4), torch.tensor(6), OverSmaller())
    tensor(0.7500, dtype=torch.float64)
    """

    name: str
    reads: tuple[str, ...] = ("pred", "ref")

    @abstractmethod
    def ratio(self, cross: Tensor, pred: Tensor, ref: Tensor) -> tuple[Tensor, Tensor]:
        """The two sides of the fraction.

        Shapes: cross, pred, ref: (...) -> numerator (...), denominator (...).
        """

    @staticmethod
    def parse(text: "str | Normalizer") -> "Normalizer":
        """The normalizer of a name; a Normalizer is returned as it is."""
        if isinstance(text, Normalizer):
            return text
        if text in _NAMED:
            return _NAMED[text]
        number = re.fullmatch(r"f(\d+\.?\d*(?:e[+-]?\d+)?)", text) if isinstance(text, str) else None
        beta = float(number[1]) if number else 0.0
        if beta == 0 or math.isinf(beta):
            named = re.fullmatch(r"(.*?)[-_ ]?(micro|macro)[-_ ]?(.*)", text) if isinstance(text, str) else None
            hint = f"; write {named[2]}_average([{named[1] + named[3] or 'f1'!r}])" if named else ""
            raise ValueError(
                f"normalizer: got {text!r}, wanted one of {', '.join(map(repr, _NAMED))}, "
                f"or 'f' and a positive number such as 'f0.5'{hint}"
            )
        return FScore(beta)


def parse_normalizers(argument: str, texts: Sequence[str | Normalizer]) -> tuple[Normalizer, ...]:
    """The normalizers of several names; TypeError naming the argument for a single one."""
    if isinstance(texts, str | Normalizer):
        raise TypeError(f"{argument}: got {texts!r}, wanted a list such as [{texts!r}]")
    return tuple(map(Normalizer.parse, texts))


def selves_read(normalizers: Iterable[Normalizer], zero_division: float | str) -> tuple[str, ...]:
    """The self-overlaps that some normalizers need between them: "agree" looks at both where one is 0."""
    found = {side for normalizer in normalizers for side in normalizer.reads}
    return tuple(side for side in ("pred", "ref") if side in found or (found and zero_division == "agree"))


@dataclass(frozen=True)
class Raw(Normalizer):
    """The cross overlap itself."""

    name, reads = "", ()

    def ratio(self, cross: Tensor, pred: Tensor, ref: Tensor) -> tuple[Tensor, Tensor]:
        return cross, torch.ones_like(cross)


@dataclass(frozen=True)
class Precision(Normalizer):
    """cross / pred."""

    name, reads = "precision", ("pred",)

    def ratio(self, cross: Side, pred: Side, ref: Side) -> tuple[Side, Side]:
        return cross, pred


@dataclass(frozen=True)
class Recall(Normalizer):
    """cross / ref."""

    name, reads = "recall", ("ref",)

    def ratio(self, cross: Side, pred: Side, ref: Side) -> tuple[Side, Side]:
        return cross, ref


@dataclass(frozen=True)
class Jaccard(Normalizer):
    """cross / (pred + ref - cross), intersection over union."""

    name = "jaccard"

    def ratio(self, cross: Side, pred: Side, ref: Side) -> tuple[Side, Side]:
        return cross, pred + ref - cross


@dataclass(frozen=True)
class FScore(Normalizer):
    """(1 + beta^2) cross / (beta^2 ref + pred): recall counts beta times as much as precision."""

    beta: float = 1.0
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _checks.check_number("beta", self.beta, "a positive finite number", lambda beta: 0 < beta < math.inf)
        object.__setattr__(self, "name", f"f{self.beta:g}")

    def ratio(self, cross: Side, pred: Side, ref: Side) -> tuple[Side, Side]:
        square = self.beta**2
        return (1 + square) * cross, square * ref + pred


_NAMED = {
    "none": Raw(),
    "precision": Precision(),
    "p": Precision(),
    "recall": Recall(),
    "r": Recall(),
    "jaccard": Jaccard(),
    "j": Jaccard(),
    "dice": FScore(),
    "f": FScore(),
}


@takes_arrays
def normalize(
    cross: Tensor,
    pred: Tensor,
    ref: Tensor,
    normalizer: str | Normalizer = "f1",
    zero_division: float | str = 0.0,
) -> Tensor:
    """The ratio of overlaps that `normalizer` names, in [0, 1] as long as cross is not above the selves.

    Shapes: cross: (...); pred: (...); ref: (...) -> (...).

    `none`; `precision`, `p`; `recall`, `r`; `jaccard`, `j`; `dice`, `f`, `f1`; `f0.5`, `f2` and so on; or an object.
    A denominator of 0 gives `zero_division`: a number, "agree" (1 if both selves are 0, else 0), or "metametric" (0 for
    an F-score, else NaN). Values are never clamped: `->` and `<-` may exceed 1. Counts are divided in float64. What is
    not finite gives nothing finite.

    >>> cross, pred, ref = torch.tensor(3), torch.tensor(4), torch.tensor(6)
    >>> normalize(cross, pred, ref, "f1"), normalize(cross, pred, ref, "recall")
    (tensor(0.6000, dtype=torch.float64), tensor(0.5000, dtype=torch.float64))
    """
    policy.check_zero_division(zero_division)
    normalizer = Normalizer.parse(normalizer)
    for name, overlap in (("cross", cross), ("pred", pred), ("ref", ref)):
        _checks.tensor(name, overlap)
    cross, pred, ref = (x if x.is_floating_point() else x.double() for x in (cross, pred, ref))
    numerator, denominator = normalizer.ratio(cross, pred, ref)
    zero = (denominator == 0) & numerator.isfinite()
    ratio = numerator / denominator.where(denominator.isfinite(), math.nan).masked_fill(zero, 1)
    if zero_division == "agree":
        return torch.where(zero, ((pred == 0) & (ref == 0)).to(ratio.dtype), ratio)
    if zero_division == "metametric":
        zero_division = 0.0 if isinstance(normalizer, FScore) else math.nan
    return ratio.masked_fill(zero, float(zero_division))


def normalized(cross: float, pred: float, ref: float, normalizer: Normalizer, zero_division: float | str) -> float:
    """`normalize` of finite numbers, without a tensor where the ratio is one of this file."""
    if type(normalizer) is Raw:
        return cross
    if type(normalizer) not in (Precision, Recall, Jaccard, FScore):
        c, p, r = (torch.tensor(side, dtype=torch.float64, device="cpu") for side in (cross, pred, ref))
        return normalize(c, p, r, normalizer, zero_division).item()
    numerator, denominator = cast(FScore, normalizer).ratio(cross, pred, ref)
    if denominator:
        return numerator / denominator
    if zero_division == "agree":
        return float(pred == ref == 0)
    if zero_division == "metametric":
        return 0.0 if type(normalizer) is FScore else math.nan
    return float(zero_division)
