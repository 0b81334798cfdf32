"""Ratings of models from pairwise judgements, with ties and intervals."""

import dataclasses
import itertools
import json
import math
import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, cast

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.callers import level_of_caller
from ...core.metric.base import Options
from ...core.metric.row_metric import RowMetric
from ...core.resampling.errors import UncertaintyWarning
from ...core.resampling.families import MEMBER, corrected
from ...core.resampling.intervals import interval
from ...core.resampling.paired import comparisons_with
from ...core.resampling.resampling import Joined, Resampled
from ...core.resampling.weights import ItemNames, ResamplingUnits, check_draws, digest
from ...core.results.estimates import Comparison, Estimate, check_confidence
from ...core.results.ranks import RANK_COLUMNS, rank_cells
from ...core.results.table import Comparisons, ComparisonTable, Table, pairs_table
from ..pairs.model_tables import one_warning
from ..pairs.sampled import ComparisonOptions
from .bradley_terry import check_connected, check_prior, fit
from .outcomes import INVALID, MISSING, BattleTable, outcome_codes, read_outcomes
from .rates import resampled_position_effect, win_rates
from .strengths import difference_of, probabilities_of, resampled_strengths, with_nu

ELO = 400 / math.log(10)
SCALES = {"elo": (ELO, 1000.0), "logit": (1.0, 0.0)}  # factor of a strength, rating of the mean
MIN_BATTLES = 10  # of a model; below that a warning is issued
CHUNK = 2**18  # draws of differences at a time

Models = Tensor | Sequence[str] | Sequence[int]


class Ratings(RowMetric):
    """Ratings of models from battles: who is stronger if people or judges only say which of two answers is better?

    Strengths are those of `bradley_terry`, with ties the model of Davidson; intervals reweigh the battles, or groups of
    them, together with one imagined battle for each model, half won and half lost, instead of the prior: a model that
    won all of 20 battles may lose the next one. The win rate of two models has Jeffreys' interval, and independent
    battles of only two models have the p-value of the exact binomial test. A rating is relative to the mean of the
    models, or to the `anchor`: whether one model is better than another is the question of `compare`, which knows that
    errors of ratings belong together.

    Args:
        models: Names of the models, or their number. By default those that occur; a number is then a name.
        ties: Whether a tie is a separate outcome; else it is half a win for each.
        prior_sd: Standard deviation of the strengths (natural logarithms of odds) in their prior. None: without a
            prior, so that a model that lost all of its battles is an error.
        scale: ``"elo"`` for 1000 + 400 / ln 10 times the strength, ``"logit"`` for the strength.
        anchor: A model and its rating, such as ``("base", 1200.0)``; by default the mean is 1000, or 0 on the scale
            of logits.

    Example:
        >>> ratings = Ratings()  # a judge sees the answers of two models to 30 questions, in both orders
        >>> questions = [f"q{i}" for i in range(30)]
        >>> ratings.update(["large"] * 30, ["small"] * 30, ["a", "a", "tie"] * 10, groups=questions)
        >>> ratings.update(["small"] * 30, ["large"] * 30, ["b", "a", "b"] * 10, groups=questions)
        >>> ratings.update(["small"] * 30, ["tiny"] * 30, ["a", "tie", "b"] * 10, groups=questions)
        >>> {model: round(float(rating)) for model, rating in ratings.compute().items()}
        {'large': 1170, 'small': 914, 'tiny': 916}
        >>> print(f"{ratings.compare('large', 'small'):.0f}")
        +256 [+145, +334], p = 0.002
        >>> ratings.compare().best
        ('large',)
        >>> print(f"{ratings.position_effect():.2f}")
        0.08 [-0.02, 0.20]
    """

    higher_is_better = True
    first: Tensor
    second: Tensor
    outcome: Tensor
    model_names: Tensor  # (n,) uint8, a line of JSON for each model that was named; without `models`

    def __init__(
        self,
        models: Sequence[str] | int | None = None,
        *,
        ties: bool = True,
        prior_sd: float | None = 3.0,
        scale: str = "elo",
        anchor: tuple[str, float] | None = None,
        **kwargs: Unpack[Options],
    ) -> None:
        super().__init__(**kwargs)
        check_prior(prior_sd)
        checks.check_choice("scale", scale, SCALES)
        if isinstance(models, Integral):
            models = [str(i) for i in range(checks.check_int("models", models, 2))]
        self.models = None if models is None else [str(name) for name in checks.as_list("models", models)]
        if self.models is not None and len({*self.models}) < max(len(self.models), 2):
            raise ValueError(f"models: got {self.models}, wanted at least two distinct names")
        checks.check_flag("ties", ties)
        if anchor is not None:
            expected = "a model and its rating, such as ('base', 1200.0)"
            if not isinstance(anchor, tuple | list) or len(anchor) != 2:
                raise TypeError(f"anchor: got {anchor!r:.60}, wanted {expected}")
            name, rating = anchor
            checks.check_number("anchor", rating, expected, math.isfinite)
            if self.models is not None:
                checks.check_choice("anchor", name, self.models)
        self.ties, self.prior_sd, self.scale, self.anchor = ties, prior_sd, scale, anchor
        self.add_columns("first", "second", "outcome")
        if self.models is None:
            self.add_rows("model_names")

    def rows_of_items(self) -> list[tuple[str, ...]]:
        return [tuple(name for name in group if name != "model_names") for group in super().rows_of_items()]

    def update(self, a: Models, b: Models, outcome: Any, **items: Unpack[ResamplingUnits]) -> None:
        """Append a batch of battles.

        Both orders of one prompt are one group, so that a judge who prefers the first answer is not counted as
        independent evidence: ``groups=prompts``.

        Args:
            a: Names or numbers of the models whose answers were shown first.
            b: Names or numbers of the models whose answers were shown second.
            outcome: 1, "a", "model_a" or the name of the model where a won, 0, "b", "model_b" or the name where b won,
                0.5, "tie", "draw" or "tie (bothbad)"; NaN or None for no judgement. Or winners one-hot: a, b, tie.
            **items: `ids` and `groups` of the battles, integers or names.

        Shape:
            - a, b, outcome, ids, groups: ``(N,)``; outcome also ``(N, 3)``

        Raises:
            ValueError: If a model is unknown or battles against itself, or an outcome is another number; on a GPU
                `compute` raises it, since `update` does not wait for values.
        """
        score = read_outcomes(outcome, a, b)
        names: dict[str, int] = {}
        first, second = (self._numbers(name, models, score.device, names) for name, models in (("a", a), ("b", b)))
        checks.check_consistent_length(a=first, b=second, outcome=score)
        checks.same_device(a=first, b=second, outcome=score)
        count = None if self.models is None else len(self.models)
        codes = outcome_codes(first, second, score, count)
        self.append_items({"first": first, "second": second, "outcome": codes}, **items)
        names_by_id = self._names() if names else {}
        if new := [name for name, model_id in names.items() if model_id not in names_by_id]:
            lines = "".join(f"{json.dumps(name)}\n" for name in new).encode("ascii")
            self.append_rows("model_names", torch.frombuffer(bytearray(lines), dtype=torch.uint8))

    def _numbers(self, argument: str, models: Any, device: torch.device, names: dict[str, int]) -> Tensor:
        # ->  (N,) int64; adds the names of new models and their numbers to `names`
        if isinstance(models, Tensor):
            checks.shape(argument, models, "N")
            checks.integral(argument, models)
            return models.long()
        models = checks.as_list(argument, models)
        if not all(isinstance(name, str) for name in models):
            numbers = [checks.check_int(argument, name, 0) for name in models]
            return torch.tensor(numbers, dtype=torch.int64, device=device)
        if self.models is None:
            ids = {name: digest(name) for name in dict.fromkeys(models)}
            names |= ids
        else:
            ids = {name: i for i, name in enumerate(self.models)}
            for name in dict.fromkeys(models):
                checks.check_choice(argument, name, ids)
        return torch.tensor([ids[name] for name in models], dtype=torch.int64, device=device)

    def _names(self) -> dict[int, str]:
        """Return the models that were named, by number."""
        lines = bytes(self.model_names.to(torch.uint8).cpu().numpy()).decode("ascii").splitlines()
        return {digest(name): name for name in map(json.loads, lines)}

    def compute(self) -> dict[str, Tensor]:
        # ->  () float64 each
        """Return the rating of each model.

        Raises:
            ValueError: If some models never battled against the others, or without a prior never lost or never won.
        """
        table = self._table()
        return self._by_model(table.models, self._fit(table))

    def batch_value(self) -> dict[str, Tensor]:
        """Return the ratings of a batch; NaN where some models of it never battled against the others."""
        table = self._table()
        try:
            return self._by_model(table.models, self._fit(table))
        except ValueError:
            return dict.fromkeys(table.models, torch.full((), torch.nan, dtype=torch.float64, device=self.first.device))

    def _by_model(self, models: Sequence[str], parameters: Tensor) -> dict[str, Tensor]:
        return dict(zip(models, self._rated(models, parameters).unbind(), strict=True))

    def _table(self) -> BattleTable:
        """Return the battles that were judged, with the models numbered from 0."""
        names = self.item_names()
        if num_invalid := int((self.outcome == INVALID).sum()):
            raise self.invalid_error(
                f"got {num_invalid} battles of no two models, or with an outcome that is not 1, 0, 0.5 or NaN"
            )
        first, second, models = self.first.long(), self.second.long(), self.models
        if models is None:
            models, (first, second) = self._numbered(torch.stack([first, second]))
        judged = self.outcome != MISSING
        if bool(judged.all()):
            return BattleTable(models, first, second, self.outcome, names)
        groups = None if names.groups is None else names.groups[judged]
        names = ItemNames(names.ids[judged], groups)
        return BattleTable(models, first[judged], second[judged], self.outcome[judged], names)

    def _numbered(self, ids: Tensor) -> tuple[list[str], Tensor]:
        # ids: (2, N) int64  ->  names of K models, (2, N) in [0, K)
        """Assign numbers to the models that occur: named models in the order of their names, then the other numbers."""
        distinct, position = ids.unique(return_inverse=True)
        names = self._names()
        models = [names.get(model_id, str(model_id)) for model_id in distinct.tolist()]
        order = sorted(
            range(len(models)),
            key=lambda i: (int(distinct[i]) not in names, names.get(int(distinct[i]), ""), int(distinct[i])),
        )
        rank = torch.empty(len(models), dtype=torch.int64, device=ids.device)
        rank[torch.tensor(order, dtype=torch.int64, device=ids.device)] = torch.arange(len(models), device=ids.device)
        return [models[i] for i in order], rank[position]

    def _fit(self, table: BattleTable) -> Tensor:
        # ->  (K + 1,), strengths and nu
        battles = table.counts(self.ties)
        if len(table.first):
            check_connected(battles, self.prior_sd, table.models, "battles")
        return with_nu(fit(battles, self.prior_sd))

    def _rated(self, models: Sequence[str], parameters: Tensor) -> Tensor:
        # parameters: (..., K + 1)  ->  (..., K)
        factor, mean = SCALES[self.scale]
        ratings = factor * parameters[..., :-1] + mean
        if self.anchor is None:
            return ratings
        name, rating = self.anchor
        checks.check_choice("anchor", name, models)
        anchored = ratings[..., models.index(name)].unsqueeze(-1)
        return ratings - anchored + rating

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled:
        replicates, seed = check_draws(replicates, seed)
        table = self._table()
        models = table.models
        resampled = resampled_strengths(table, self._fit(table), self.ties, replicates, seed)
        return resampled._replace(read=lambda parameters: self._rated(models, parameters))

    def _replicates(self, method: str, replicates: int | None = None, seed: int | None = None) -> Resampled:
        return cast(Resampled, self._resampled(method, replicates, seed))

    def _estimates(self, resampled: Resampled | Joined, confidence: float) -> Estimate:
        table = self._table()
        wins, ties = table.counts(ties=True)
        sparse = [
            f"{model} has {count:.0f}"
            for model, count in zip(table.models, (wins + wins.mT + ties).sum(-1).tolist(), strict=True)
            if count < MIN_BATTLES
        ]
        if sparse:
            message = f"few battles: {', '.join(sparse[:5])}; wanted at least {MIN_BATTLES} of each model"
            warnings.warn(message, UncertaintyWarning, stacklevel=level_of_caller())
        estimate = interval(resampled, confidence)
        return dataclasses.replace(estimate, name="rating", labels=tuple(table.models))

    def compare(
        self,
        a: str | None = None,
        b: str | None = None,
        *,
        correction: str = "max-t",
        confidence: float = 0.95,
        alternative: str = "two-sided",
        replicates: int | None = None,
        seed: int | None = None,
        rope: float | None = None,
    ) -> Any:
        """Compare the ratings of two models, or of all pairs; the errors of both ratings are taken together.

        Args:
            a: A model; None for all pairs.
            b: Another one.
            correction: Correction of all pairs; see `tensormetrics.compare`.
            confidence: Mass of the interval, in (0, 1).
            alternative: ``"two-sided"``, ``"greater"``: a is above b, or ``"less"``.
            replicates: Number of random draws, by default 1000.
            seed: Seed of the draws, by default 0.
            rope: Differences up to it do not matter in practice.

        Returns:
            A `Comparison` of a minus b; or a `ComparisonTable` of all pairs, with `best` and `ranks`.

        Raises:
            ValueError: If a model is unknown, or as in `compute`.
        """
        options = ComparisonOptions(confidence, alternative, replicates, seed, rope)
        options.question(self._direction)  # checks the options before any work
        resampled = self._replicates("compare", replicates, seed)
        models = self._table().models
        with one_warning():
            estimate = self._estimates(resampled, confidence)
            if a is not None or b is not None:
                for argument, name in (("a", a), ("b", b)):
                    checks.check_choice(argument, name, models)
                return self._compared(resampled, estimate, [(models.index(str(a)), models.index(str(b)))], options)[0]
            by_pair = self._all_pairs(resampled, estimate, options, correction)
        return ComparisonTable._of(pairs_table(by_pair, ["rating"]), self._model_table(estimate, by_pair))

    def _all_pairs(
        self, resampled: Resampled, estimate: Estimate, options: ComparisonOptions, correction: str
    ) -> Comparisons:
        models = self._table().models
        pairs = list(itertools.combinations(range(len(models)), 2))
        compared = self._compared(resampled, estimate, pairs, options._replace(of_family=True))
        compared = corrected(compared, correction)
        return {(models[i], models[j]): {"rating": result} for (i, j), result in zip(pairs, compared, strict=True)}

    def _compared(
        self, resampled: Resampled, estimate: Estimate, pairs: list[tuple[int, int]], options: ComparisonOptions
    ) -> list[Comparison]:
        compared, table = [], self._table()
        for chunk in torch.tensor(pairs, device=self.first.device).split(max(CHUNK // len(resampled.weighted), 1)):
            read = difference_of(SCALES[self.scale][0], *chunk.unbind(1))
            differences = resampled._replace(read=read, signs=table.wins_of_two(*chunk[0].tolist()))
            result = comparisons_with(differences, 0.0, options.question(self._direction))
            for position, (i, j) in enumerate(chunk.tolist()):
                fields: dict[str, Any] = {"name": "rating", "a": estimate[i], "b": estimate[j]}
                if options.of_family:
                    fields["details"] = result.details | {MEMBER: result.details[MEMBER].take(position)}
                compared.append(dataclasses.replace(result[position], **fields))
        return compared

    def table(self, name: str | None = None, **options: Any) -> Table:
        """Return a table of the models: rating, battles, win rate (ties half), and range of ranks.

        "first rank" and "last rank" are right for all models at once with probability `confidence`; "best" are the
        models that cannot be distinguished from the best one.

        Args:
            name: Title of the table.
            **options: Options of `interval`.

        Raises:
            ValueError: As `interval`.
        """
        confidence = check_confidence(options.pop("confidence", 0.95))
        resampled = self._replicates("table", **options)
        estimate = self._estimates(resampled, confidence)
        with one_warning():
            pairs = self._all_pairs(resampled, estimate, ComparisonOptions(confidence), "max-t")
        table = self._model_table(estimate, pairs)
        return table._with(title=name).sort("rating")

    def _model_table(self, estimate: Estimate, pairs: Comparisons) -> Table:
        table = self._table()
        wins, ties = table.counts(ties=True)
        battles = (wins + wins.mT + ties).sum(-1)
        rates = (wins + ties / 2).sum(-1) / battles
        columns = {"rating": True, "battles": None, "win rate": True} | dict.fromkeys(RANK_COLUMNS)
        ranks = rank_cells(table.models, pairs, "rating")
        rows = [
            {"rating": estimate[i], "battles": int(count), "win rate": rate, **ranks_of_model}
            for i, (count, rate, ranks_of_model) in enumerate(zip(battles.tolist(), rates.tolist(), ranks, strict=True))
        ]
        return Table(list(table.models), columns, rows, index="model")

    def predict(
        self,
        a: str,
        b: str,
        *,
        confidence: float = 0.95,
        replicates: int | None = None,
        seed: int | None = None,
    ) -> Estimate:
        """Estimate the probabilities that a beats b, of a tie, and that b beats a.

        Args:
            a: A model.
            b: Another one.
            confidence: Mass of the intervals, in (0, 1).
            replicates: Number of random draws, by default 1000.
            seed: Seed of the draws, by default 0.

        Returns:
            An `Estimate` of three values, labelled "a", "tie" and "b".

        Raises:
            ValueError: If a model is unknown, or as in `compute`.
        """
        confidence = check_confidence(confidence)
        models = self._table().models
        for argument, name in (("a", a), ("b", b)):
            checks.check_choice(argument, name, models)
        read = probabilities_of(models.index(a), models.index(b))
        resampled = self._replicates("predict", replicates, seed)._replace(read=read, range=(0.0, 1.0))
        return dataclasses.replace(interval(resampled, confidence), name="probability", labels=("a", "tie", "b"))

    def win_rates(self, *, confidence: float = 0.95, replicates: int | None = None, seed: int | None = None) -> Table:
        """Return how often the model of each row beat that of each column, ties half: without any model of strengths.

        Args:
            confidence: Mass of the intervals, in (0, 1).
            replicates: Number of random draws, by default 1000.
            seed: Seed of the draws, by default 0.

        Returns:
            A `Table` of an `Estimate` for each pair that battled; each is the interval of its scores by themselves.
        """
        with self._whole_state("win_rates"):
            table = self._table()
        return win_rates(table, confidence=confidence, replicates=replicates, seed=seed)

    def position_effect(
        self, *, confidence: float = 0.95, replicates: int | None = None, seed: int | None = None
    ) -> Estimate:
        """Estimate how many more points than half the answer that is shown first wins: 0 without an effect.

        For each pair of models that battled in both orders, the effect is the mean win rate of the first answer over
        the two orders, ties half, less 1/2: strengths cancel. A pair with n1 and n2 battles in the two orders has the
        weight n1 n2 / (n1 + n2).

        Args:
            confidence: Mass of the interval, in (0, 1).
            replicates: Number of random draws, by default 1000.
            seed: Seed of the draws, by default 0.

        Returns:
            An `Estimate` in [-0.5, 0.5]; NaN where no pair battled in both orders.
        """
        confidence = check_confidence(confidence)
        with self._whole_state("position_effect"):
            table = self._table()
        resampled = resampled_position_effect(table, *check_draws(replicates, seed))
        return dataclasses.replace(interval(resampled, confidence), name="position effect")
