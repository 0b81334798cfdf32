"""Which metrics AccuracyCalculator was asked for, and how deep it may look."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from torch import Tensor

from ... import _checks
from .metric_names import NAMES, is_known

Keep = Literal["scores", "all", "neighbours"]
KEEP: tuple[Keep, ...] = get_args(Keep)
OF_NEIGHBOURS = (
    "mean_average_precision",
    "mean_average_precision_at_r",
    "mean_reciprocal_rank",
    "precision_at_1",
    "r_precision",
)


def calculates(name: str) -> Callable[..., Tensor]:
    """The method `calculate_{name}`, which a subclass may override or call."""

    def calculate(self: Any, **given: Any) -> Tensor:
        return self._value(name, **given)

    calculate.__name__ = f"calculate_{name}"
    return calculate


def check_names(methods: Sequence[str], **options: Any) -> None:
    """TypeError for what is no list or tuple, ValueError for names that are none; `methods`: those of a user's own."""
    for option, names in options.items():
        if not isinstance(names, list | tuple):
            raise TypeError(f"{option}: got {names!r}, wanted a list or tuple of metric names")
        for name in names:
            if not (name in methods or is_known(name)):
                known = ", ".join(dict.fromkeys((*methods, *NAMES)))
                raise ValueError(f"{option}: got {name!r}, wanted names among {known}")


def check_comparable(unable: Sequence[str], **options: Any) -> None:
    """NotImplementedError where metrics are `unable` to use an option that is given."""
    for option, given in options.items():
        if given is not None and unable:
            raise NotImplementedError(f"{option}: {', '.join(unable)} cannot use it; write exclude={tuple(unable)!r}")


def checked_k(k: Any) -> Any:
    if k is None or k == "max_bin_count":
        return k
    try:
        return _checks.integer_at_least("k", k, 1)
    except ValueError:
        raise ValueError(f"k must be an integer >= 1, None or 'max_bin_count', got {k!r}") from None


def check_keep(keep: Keep, k: Any, ties: str) -> None:
    _checks.one_of("keep", keep, KEEP)
    if keep == "neighbours" and k is None:
        raise ValueError("k: got None with keep='neighbours', wanted how many to keep, such as k=10")
    if keep == "neighbours" and ties != "index":
        raise ValueError(f"ties: got {ties!r} with keep='neighbours', wanted 'index', the order of neighbours")


def joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Values by name, of several levels."""
    return {name: value for part in parts for name, value in part.items()}
