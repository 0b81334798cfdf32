"""The chance that at least one of k samples of an answer is right, or that all of them are."""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import TypeVar, Unpack

from ...core.arguments import checks
from ...core.arguments.checks import takes_arrays
from ...core.metric.base import AtK, Options, Scores
from ...core.metric.row_metric import RowMetric
from ...core.numbers.exact_sums import doubling_sums
from ...core.resampling.means import resampled_means
from ...core.resampling.resampling import Resampled
from ...core.resampling.weights import ItemNames, check_draws, sums_by_item, units

REQUIREMENTS = {"any": "pass@", "all": "pass^"}  # -> the name of a score, before k
Depth = TypeVar("Depth", bound=int | Sequence[int], default=Sequence[int], covariant=True)
BLOCK = 64  # factors at a time, so that products do not depend on the number of problems


@takes_arrays
def pass_at_k(n: Any, c: Any, k: int | Sequence[int], *, require: str = "any") -> Tensor:
    """Estimate the chance that k samples of a problem, of which n were drawn and c are right, hold a right one.

    The unbiased estimate: the fraction of the subsets of k of the n samples that hold a right one, or with
    ``require="all"`` right ones alone (pass^k, how reliable answers are).

    Args:
        n: Number of samples of each problem.
        c: How many of them are right.
        k: Number of samples in a subset, or several numbers.
        require: ``"any"`` or ``"all"`` of the k samples.

    Shape:
        - n, c: ``(...)`` integers, broadcast
        - Output: ``(...)`` float64 in [0, 1], higher is better; ``(..., K)`` for K numbers k

    Returns:
        The chance for each problem; `interval(pass_at_k(n, c, k), bounds=(0, 1))` is their mean with its interval.

    Raises:
        ValueError: If k is above n, c above n or negative, or an option is unknown.

    Example:
        >>> pass_at_k(10, 3, (1, 5))
        tensor([0.3000, 0.9167], dtype=torch.float64)
        >>> pass_at_k(torch.tensor([5, 4]), torch.tensor([4, 4]), 2, require="all")
        tensor([0.6000, 1.0000], dtype=torch.float64)

    References:
        Chen et al. 2021, doi:10.48550/arXiv.2107.03374
        Yao et al. 2024, doi:10.48550/arXiv.2406.12045
    """
    sizes = _sizes(k)
    checks.check_choice("require", require, REQUIREMENTS)
    device = next((count.device for count in (n, c) if isinstance(count, Tensor)), torch.device("cpu"))
    counts = [torch.as_tensor(count, device=device) for count in (n, c)]
    checks.integral("n", counts[0])
    checks.integral("c", counts[1])
    num_samples, right = torch.broadcast_tensors(*(count.long() for count in counts))
    max_k = max(sizes)
    wrong = {
        f"n: got fewer than k = {max_k}": num_samples < max_k,
        "c: got more than n": right > num_samples,
        "c: got < 0": right < 0,
    }
    has_error = torch.stack([*wrong.values()]).reshape(len(wrong), -1).any(1).tolist()
    for message in (message for message, is_present in zip(wrong, has_error, strict=True) if is_present):
        raise ValueError(f"{message}; wanted 0 <= c <= n and n >= k for each problem")
    chances = _chances(num_samples, right, sizes, require)
    return chances if isinstance(k, Sequence) else chances[..., 0]


def _sizes(k: Any) -> tuple[int, ...]:
    sizes = tuple(checks.check_int("k", size, 1) for size in (k if isinstance(k, Sequence) else [k]))
    if not sizes:
        raise ValueError("k: got no number, wanted at least one")
    return sizes


def _chances(num_samples: Tensor, right: Tensor, sizes: Sequence[int], require: str) -> Tensor:
    # num_samples, right: (...) int64  ->  (..., K) float64, NaN where k is above the number drawn
    """Multiply the chances that one sample after the other is right, or wrong."""
    left = right if require == "all" else num_samples - right
    products: dict[int, Tensor] = {}
    product = torch.ones_like(num_samples, dtype=torch.float64)
    for first in range(0, max(sizes), BLOCK):
        index = torch.arange(first, min(first + BLOCK, max(sizes)), device=num_samples.device)
        numerators = (left[..., None] - index).clamp(min=0).double()
        factors = numerators / (num_samples[..., None] - index).clamp(min=0)
        factors[..., 0] *= product
        steps = doubling_sums(factors, torch.mul)
        products |= {size: steps[..., size - 1 - first] for size in sizes if first < size <= first + BLOCK}
        product = steps[..., -1]
    chances = torch.stack([products[size].masked_fill(num_samples < size, torch.nan) for size in sizes], -1)
    return chances if require == "all" else 1 - chances


class PassAtK(AtK[Depth], RowMetric[Scores]):
    """Mean chance over problems that at least one of k samples, or all of them, are right; see `pass_at_k`.

    Problems may have different numbers of samples, in any batches. `interval` and `compare` reweight the problems; the
    interval of a chance below .01 or above .99, which few problems carry, is too short: in simulations of 30 and 100
    problems it holds the chance in .81 to .90 of data sets.

    Args:
        k: Number of samples in a subset, or several numbers.
        require: ``"any"`` for pass@k, ``"all"`` for pass^k.

    Shape:
        - Output: ``()`` for one k, else a dictionary of ``()`` by name, such as "pass@5"

    Example:
        >>> metric = PassAtK((1, 2))
        >>> metric.update(torch.tensor([True, False, False, True]), ["sort", "sort", "sum", "sum"])
        >>> metric.update(torch.tensor([0, 3, 4]), torch.tensor([4, 3, 4]), ids=["parse", "sort", "zip"])  # c and n
        >>> metric.update(torch.tensor([1, 2]), torch.tensor([4, 4]), ids=["diff", "glob"])
        >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
        {'pass@1': 0.508, 'pass@2': 0.722}
        >>> print(f"{metric.interval()['pass@2']:.2f}")
        0.72 [0.36, 0.99]
    """

    higher_is_better = True
    plot_lower_bound: float | None = 0.0
    plot_upper_bound: float | None = 1.0

    right: Tensor
    drawn: Tensor

    def __init__(
        self,
        k: Depth = (1, 5, 10),  # type: ignore[assignment]
        *,
        require: str = "any",
        **kwargs: Unpack[Options],
    ) -> None:
        super().__init__(**kwargs)
        checks.check_choice("require", require, REQUIREMENTS)
        self.k, self.require, self.is_single = _sizes(k), require, not isinstance(k, Sequence)
        self._problem_names: dict[int, str] = {}  # of the ids, for messages
        self.add_columns("right", "drawn")

    def update(
        self,
        correct: Tensor | None = None,
        problem_ids: Tensor | Sequence[Hashable] | None = None,
        *,
        c: Tensor | None = None,
        n: Tensor | None = None,
        ids: Tensor | Sequence[Hashable] | None = None,
        groups: Tensor | Sequence[Hashable] | None = None,
    ) -> None:
        """Add samples, ``update(correct, problem_ids)``, or numbers of samples, ``update(c, n, ids=ids)``.

        Args:
            correct: Whether each sample is right.
            problem_ids: Integer or name of each sample's problem.
            c: How many samples of each problem are right.
            n: How many samples of each problem there are.
            ids: Integer or name of each problem. Numbers of equal ids are added up.
            groups: Integer or name of what the problem belongs to, such as a topic; the same for all of its samples.

        Shape:
            - correct: ``(N,)`` bool
            - problem_ids: ``(N,)``
            - c, n: ``(P,)`` integers
            - ids: ``(P,)``
            - groups: ``(N,)`` or ``(P,)``

        Raises:
            ValueError: If shapes or dtypes differ from these.
            TypeError: If an argument of one form is missing, or of the other form.
        """
        first: Any = correct if c is None else c
        second: Any = problem_ids if n is None else n
        is_mixed = (c is None) != (n is None) or not (c is None or correct is None is problem_ids)
        if is_mixed or first is None or second is None or (c is not None and ids is None):
            raise TypeError("update: wanted (correct, problem_ids), or (c, n, ids=ids)")
        if ids is None:
            checks.shape("correct", first, "N")
            if first.dtype != torch.bool:
                raise ValueError(f"correct: got {first.dtype}, wanted torch.bool; write correct.bool()")
            self._add_counts(first.long(), torch.ones_like(first, dtype=torch.int64), second, "problem_ids", groups)
            return
        checks.integral("c", first)
        checks.integral("n", second)
        checks.shape("c", first, "P")
        checks.shape("n", second, len(first))
        checks.same_device(c=first, n=second)
        self._add_counts(first.long(), second.long(), ids, "ids", groups)

    def _add_counts(self, right: Tensor, num_samples: Tensor, ids: Any, name: str, groups: Any) -> None:
        # right, num_samples: (P,) int64
        problem_ids = units(name, ids, len(right), right.device)
        self.append_items({"right": right, "drawn": num_samples}, ids=problem_ids, groups=groups)
        if not isinstance(ids, Tensor) and len(ids) and isinstance(ids[0], str):
            self._problem_names |= dict(zip(problem_ids.tolist(), ids, strict=True))

    def update_options(self) -> dict[str, Any]:
        return {"update": type(self).update}

    def compute(self) -> Any:
        # ->  () float64, or several by name
        """Return the mean over the problems.

        Raises:
            ValueError: If a problem has fewer than k samples, or more right ones than samples.
        """
        chances, _ = self._per_problem(is_strict=True)
        return self._named(chances.mean(0))

    def batch_value(self) -> Any:
        # A batch need not hold k samples of a problem: its value is then NaN.
        chances, _ = self._per_problem(is_strict=False)
        return self._named(chances.mean(0))

    def _named(self, values: Tensor) -> Any:
        # values: (..., K)
        if self.is_single:
            return values[..., 0]
        return {REQUIREMENTS[self.require] + str(k): value for k, value in zip(self.k, values.unbind(-1), strict=True)}

    def _per_problem(self, is_strict: bool) -> tuple[Tensor, ItemNames]:
        # ->  (P, K), and the problems
        rows = torch.stack([self.right, self.drawn], 1) if len(self.right) else self.right.new_zeros(0, 2)
        counts, problems = sums_by_item(rows.long(), self.item_names())
        right, num_samples = counts.unbind(1)
        if is_strict and len(counts):
            self._check(right, num_samples, problems)
        return _chances(num_samples, right, self.k, self.require), problems

    def _check(self, right: Tensor, num_samples: Tensor, problems: ItemNames) -> None:
        smallest = num_samples.argmin()
        wrong = (right > num_samples) | (right < 0)
        fewest, position, is_wrong, first = torch.stack(
            [num_samples[smallest], smallest, wrong.any(), wrong.long().argmax()]
        ).tolist()
        if is_wrong:
            raise ValueError(
                f"c: got {int(right[first])} right of {int(num_samples[first])} samples of problem "
                f"{self._name(problems, first)}, wanted 0 <= c <= n"
            )
        if fewest < max(self.k):
            raise ValueError(
                f"k: got {max(self.k)}, but problem {self._name(problems, position)} has {fewest} samples, the fewest; "
                f"wanted k <= {fewest}, or more samples"
            )

    def _name(self, problems: ItemNames, position: int) -> str:
        problem_id = int(problems.ids[position])
        return repr(self._problem_names.get(problem_id, problem_id))

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        chances, problems = self._per_problem(is_strict=True)
        means = resampled_means(chances, problems, *check_draws(replicates, seed), bounds=(0.0, 1.0))
        return means.take(read=self._named)
