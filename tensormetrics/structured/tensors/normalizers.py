"""Ratios of a cross overlap to the self-overlaps of prediction and reference."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from . import policy

Value = TypeVar("Value", float, Tensor)
LABEL_AVERAGES = "types", "weighted"


class Normalizer(ABC):
    """Base of the ratios of overlaps. Subclasses define `name` and `ratio`; `normalize` decides about 0/0.

    `reads` are the self-overlaps that the ratio needs: others may be 0 and are not computed for objects.

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
        """Return the numerator and the denominator of the ratio.

        Shapes: cross, pred, ref: (...) -> numerator (...), denominator (...).
        """

    @staticmethod
    def parse(text: "str | Normalizer") -> "Normalizer":
        """Parse the name of a normalizer; a Normalizer is returned unchanged."""
        if isinstance(text, Normalizer):
            return text
        if isinstance(text, str) and text in _NAMED:
            return _NAMED[text]
        f_match = re.fullmatch(r"f(\d+\.?\d*(?:e[+-]?\d+)?)", text) if isinstance(text, str) else None
        beta = float(f_match[1]) if f_match else 0.0
        if beta == 0 or math.isinf(beta):
            named = re.fullmatch(r"(.*?)[-_ ]?(micro|macro)[-_ ]?(.*)", text) if isinstance(text, str) else None
            hint = f"; write {named[2]}_average([{named[1] + named[3] or 'f1'!r}])" if named else ""
            if isinstance(text, str) and ("@k" in text or text.startswith("ranking_")):
                hint = "; those of rankings are in tensormetrics.compat.metametric"
            raise ValueError(
                f"normalizer: got {text!r}, wanted one of {', '.join(map(repr, _NAMED))}, "
                f"or 'f' and a positive number such as 'f0.5'{hint}"
            )
        return FScore(beta)


def parse_normalizers(argument: str, texts: Sequence[str | Normalizer]) -> tuple[Normalizer, ...]:
    """Parse several names of normalizers; a single one is a TypeError that names the argument."""
    if isinstance(texts, str | Normalizer):
        raise TypeError(f"{argument}: got {texts!r}, wanted a list such as [{texts!r}]")
    return tuple(map(Normalizer.parse, texts))


def required_self_overlaps(normalizers: Iterable[Normalizer], zero_division: float | str) -> tuple[str, ...]:
    """Return the self-overlaps that the normalizers need; "agree" compares both if one is 0."""
    reads = {name for normalizer in normalizers for name in normalizer.reads}
    return tuple(name for name in ("pred", "ref") if name in reads or (reads and zero_division == "agree"))


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

    def ratio(self, cross: Value, pred: Value, ref: Value) -> tuple[Value, Value]:
        return cross, pred


@dataclass(frozen=True)
class Recall(Normalizer):
    """cross / ref."""

    name, reads = "recall", ("ref",)

    def ratio(self, cross: Value, pred: Value, ref: Value) -> tuple[Value, Value]:
        return cross, ref


@dataclass(frozen=True)
class Jaccard(Normalizer):
    """cross / (pred + ref - cross), intersection over union."""

    name = "jaccard"

    def ratio(self, cross: Value, pred: Value, ref: Value) -> tuple[Value, Value]:
        return cross, pred + ref - cross


@dataclass(frozen=True)
class FScore(Normalizer):
    """(1 + beta^2) cross / (beta^2 ref + pred): recall counts beta times as much as precision."""

    beta: float = 1.0
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.check_number("beta", self.beta, "a positive finite number", lambda beta: 0 < beta < math.inf)
        object.__setattr__(self, "name", f"f{self.beta:g}")

    def ratio(self, cross: Value, pred: Value, ref: Value) -> tuple[Value, Value]:
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
    """Normalize an overlap by the self-overlaps, for example to precision, recall or F1.

    Values lie in [0, 1] if `cross` exceeds neither self-overlap.

    Shapes: cross: (...); pred: (...); ref: (...) -> (...).

    Normalizers: `none`; `precision`, `p`; `recall`, `r`; `jaccard`, `j`; `dice`, `f`, `f1`; `f0.5`, `f2` and so on; or
    an object. A denominator of 0 gives `zero_division`: a number, "agree" (1 if both self-overlaps are 0, else 0), or
    "metametric" (0 for an F-score, else NaN). Values are never clamped: `->` and `<-` may exceed 1. Counts are divided
    in float64. Overlaps that are read and not finite give no finite value.

    >>> cross, pred, ref = torch.tensor(3), torch.tensor(4), torch.tensor(6)
    >>> normalize(cross, pred, ref, "f1"), normalize(cross, pred, ref, "recall")
    (tensor(0.6000, dtype=torch.float64), tensor(0.5000, dtype=torch.float64))
    """
    policy.check_zero_division(zero_division)
    normalizer = Normalizer.parse(normalizer)
    for name, overlap in (("cross", cross), ("pred", pred), ("ref", ref)):
        checks.tensor(name, overlap)
    cross, pred, ref = (x if x.is_floating_point() else x.double() for x in (cross, pred, ref))
    numerator, denominator = normalizer.ratio(cross, pred, ref)
    zero = (denominator == 0) & numerator.isfinite()
    ratio = numerator / denominator.where(denominator.isfinite(), math.nan).masked_fill(zero, 1)
    if zero_division == "agree":
        return torch.where(zero, ((pred == 0) & (ref == 0)).to(ratio.dtype), ratio)
    if zero_division == "metametric":
        zero_division = 0.0 if isinstance(normalizer, FScore) else math.nan
    return ratio.masked_fill(zero, float(zero_division))


def mean_over_labels(scores: Tensor, pred: Tensor, ref: Tensor, average: str) -> Tensor:
    # scores, pred, ref: (..., L)  ->  (...), NaN if no label has a score
    """Average over the labels that occur, or weighted by their reference items; a score of NaN does not count."""
    weight = ref if average == "weighted" else (pred + ref > 0).to(ref.dtype)
    return (scores * weight).nansum(-1) / weight.masked_fill(scores.isnan(), 0).sum(-1)


def normalized(cross: float, pred: float, ref: float, normalizer: Normalizer, zero_division: float | str) -> float:
    """Normalize finite numbers like `normalize`, without tensors for the normalizers of this module."""
    if type(normalizer) is Raw:
        return cross
    if type(normalizer) not in (Precision, Recall, Jaccard, FScore):
        c, p, r = (torch.tensor(overlap, dtype=torch.float64, device="cpu") for overlap in (cross, pred, ref))
        return normalize(c, p, r, normalizer, zero_division).item()
    numerator, denominator = cast(FScore, normalizer).ratio(cross, pred, ref)
    if denominator:
        return numerator / denominator
    if zero_division == "agree":
        return float(pred == ref == 0)
    if zero_division == "metametric":
        return 0.0 if type(normalizer) is FScore else math.nan
    return float(zero_division)
