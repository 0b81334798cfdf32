"""The comparator of a user's function."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...core.arguments import checks
from .base import Answers, Comparator, call, check_fraction, distinct_pairs, to_float, typed


@dataclass(frozen=True)
class from_func(Comparator):
    """Similarity of two values by a Python function, clamped to [0, 1].

    The function is called at most once for each distinct ordered pair of values in a batch, and never for equal values,
    which have similarity 1. If a call fails, the results before it are kept for the next attempt. This is a comparator
    of fields; `dsl.from_func` makes a metric of objects.

    Args:
        function: f(prediction, reference) -> number; if batched, f(predictions, references) -> one number per pair.
        threshold: Smallest similarity of a correct value, in [0, 1].
        batched: The function takes two lists.
        symmetric: f(a, b) equals f(b, a), so that only one of them is computed.
        batch_size: Maximum number of pairs of a batched call.

    Raises:
        ValueError: If a similarity is NaN or no number; the message has the pair.

    Example:
        >>> from_func(lambda pred, ref: 1 - abs(len(pred) - len(ref)) / 10).similarity("abc", "a")
        0.8
    """

    function: Callable[..., Any]
    threshold: float = 0.5
    batched: bool = False
    symmetric: bool = False
    batch_size: int = 1024
    is_equality: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"from_func: got {self.function!r:.60}, wanted a function of a prediction and a reference")
        check_fraction("from_func: threshold", self.threshold)
        checks.check_int("from_func: batch_size", self.batch_size, 1)

    def _compare(
        self, keys: Sequence[Any], i: np.ndarray, j: np.ndarray, cutoff: float, answers: Answers | None
    ) -> np.ndarray:
        answers = Answers() if answers is None else answers
        results = answers.of(self.function)
        preds, refs, index = distinct_pairs(i, j, len(keys))
        pairs = [(keys[a], keys[b]) for a, b in zip(preds, refs, strict=True)]
        names = [(typed(pred), typed(ref)) for pred, ref in pairs]
        unknown: dict[tuple[Hashable, Hashable], tuple[Any, Any]] = {}
        for name, pair in zip(names, pairs, strict=True):
            if name not in results and not (self.symmetric and name[::-1] in unknown):
                unknown.setdefault(name, pair)

        def read(result: Any) -> float:
            return min(max(to_float(result), 0.0), 1.0)  # of NaN: NaN

        size, todo = self.batch_size if self.batched else 1, list(unknown.items())
        for start in range(0, len(todo), size):
            part = dict(todo[start : start + size])
            answers.num_calls += len(part)
            wrong = call(self.function, part, results, self.batched, read)
            if self.symmetric:
                results |= {name[::-1]: results[name] for name in part if name in results}
            if wrong is not None:
                result, (pred, ref) = wrong[0], unknown[wrong[1]]
                raise ValueError(f"from_func: got {result!r:.60} for {pred!r:.60} and {ref!r:.60}, wanted a number")
        return np.array([results[name] for name in names])[index]
