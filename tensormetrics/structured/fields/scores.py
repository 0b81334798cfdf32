"""The metric `FieldScores`: precision, recall and F1 of every field of structured documents."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.arguments import checks
from ...core.metric.base import Options
from ...core.metric.distributed import constructor_options
from ...core.metric.sum_metric import SumMetric
from ...core.resampling.draws import Bounds
from ...core.resampling.families import corrected
from ...core.resampling.resampling import Joined, Resampled, combine
from ...core.results.estimates import Comparison, Estimate
from ...core.results.score_table import ScoreTable
from ..types.values import array_of, json_kind, object_of
from .documents import DocumentScorer, ScoredDocuments, read_json, read_schema
from .engine.compare import COUNTS
from .engine.slots import DocumentOptions
from .explain import Explanation, explain
from .infer import infer_schema
from .reading import HOWS
from .report import DOCUMENT_COLUMNS, FieldReport

COLUMNS = (*COUNTS, "similarity")  # of each row in the sums
GRID = 2.0**34  # similarities are multiples of its inverse, so that sums of 2^18 of them are exact in any order


class FieldScores(SumMetric[ScoreTable[Estimate]]):
    """Precision, recall and F1 of every field of structured documents, such as the JSON answers of a language model.

    A value is correct, wrong, missed (only in the reference) or invented (only in the prediction). Items of lists are
    matched one-to-one with the maximum sum of similarities. `evaluate` computes the same scores in one call.

    Args:
        schema: A record class (dataclass, TypedDict, NamedTuple, attrs, msgspec, pydantic), another type such as
            ``list[Invoice]``, or a JSON Schema as a dictionary. `infer` infers it from references.
        replicates: Number of weighted sums that every update adds up for `interval` and `compare`, 0 for no intervals;
            by default these draw weights when they are called.
        seed: Seed of the draws.
        **options: Options of `evaluate` for reading and comparison, and options of torchmetrics.

    Raises:
        TypeError: If an option is unknown.
        ValueError: If the schema allows any value at some path, or a path of ``fields`` is unknown.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Person:
        ...     name: str
        ...     born: int | None = None
        >>> metric = FieldScores(Person)
        >>> metric.update(['{"name": "Ada", "born": 1815}', '{"name": "Kurt", "born": 1907}'],
        ...               [{"name": "Ada", "born": 1815}, {"name": "Kurt", "born": 1906}])
        >>> scores = metric.compute()
        >>> scores["f1[born]"], scores["micro-f1"], scores["exact"]
        (tensor(0.5000, dtype=torch.float64), tensor(0.7500, dtype=torch.float64), tensor(0.5000, dtype=torch.float64))
    """

    higher_is_better = True
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0
    has_target = True
    model_options = (*SumMetric.model_options, "extract")

    support: Tensor  # (R,), number of documents with the field in the reference
    invalid: Tensor  # (P,), number of values of a wrong type
    read: Tensor  # (len(HOWS),)
    num_extra: Tensor  # ()
    num_skipped: Tensor  # ()

    def __init__(self, schema: Any, *, replicates: int | None = None, seed: int = 0, **options: Any) -> None:
        metric_options = {name: options.pop(name) for name in list(options) if name in Options.__annotations__}
        super().__init__(replicates=replicates, seed=seed, **metric_options)
        self.scorer = DocumentScorer(read_schema(schema), DocumentOptions.of(options))
        self.add_sums(len(COLUMNS) * len(self.paths) + len(DOCUMENT_COLUMNS))
        shapes = {"support": (len(self.paths),), "invalid": (len(self.scorer.plan.paths),), "read": (len(HOWS),)}
        for name in (*shapes, "num_extra", "num_skipped"):
            self.add_state(name, torch.zeros(shapes.get(name, ()), dtype=torch.float64), "sum")

    @classmethod
    def infer(cls, references: Sequence[Any], **options: Any) -> FieldScores:
        """Create a metric with types inferred from references; keys that the references lack count as invented.

        Args:
            references: Values, or texts of JSON.
            **options: Options of the class.
        """
        schema = infer_schema([read_json(reference, n) for n, reference in enumerate(references)])
        return cls(schema, **{"extra": "invented", **options})

    @property
    def paths(self) -> list[str]:
        """Paths of the rows: scalars, and items of lists."""
        return self.scorer.plan.rows

    def update(self, preds: Sequence[Any], refs: Sequence[Any], ids: Any = None, groups: Any = None) -> None:
        """Add documents.

        Args:
            preds: An answer for each document: a text, None, or a parsed value.
            refs: A reference for each document: a value, or a text of JSON.
            ids: Integers or names of the documents; documents of the same id have equal weights in every replicate.
            groups: Integers or names of the groups of the documents, such as customers.

        Raises:
            ValueError: If the numbers of documents differ, or a reference is no value of the schema.
        """
        self._add(preds, refs, ids, groups)

    def add_batch(
        self, preds: Sequence[Any], refs: Sequence[Any], ids: Any = None, groups: Any = None
    ) -> ScoredDocuments:
        """Add documents as `update` does, and return their scores."""
        scored: list[ScoredDocuments] = []

        def update() -> None:
            scored.append(self._add(preds, refs, ids, groups))

        self._wrap_update(update)()
        return scored[0]

    def _add(self, preds: Sequence[Any], refs: Sequence[Any], ids: Any, groups: Any) -> ScoredDocuments:
        preds, refs = checks.as_list("preds", preds), checks.as_list("refs", refs)
        if len(preds) != len(refs):
            raise ValueError(f"preds: got {len(preds)} documents, wanted {len(refs)}, one for each reference")
        names = None if ids is None else ids.tolist() if isinstance(ids, Tensor) else list(ids)
        scored = self.scorer.score(preds, refs, names, int(self.read.sum()))
        counts = scored.comparison
        similarity = torch.from_numpy(counts.similarity)[..., None]
        rows = torch.cat([torch.from_numpy(counts.counts).double(), similarity], -1).flatten(1)
        rates = [torch.from_numpy(flags).double() for flags in (scored.is_readable, scored.is_valid, scored.is_exact)]
        of_documents = torch.stack([torch.ones_like(rates[0]), *rates, torch.from_numpy(scored.similarity)], -1)
        rows = (torch.cat([rows, of_documents], -1) * GRID).round() / GRID
        included = scored.included.tolist()
        digests = [_digest(scored.references[n]) if self._keeps_items else 0 for n in included]
        targets = torch.tensor(digests, dtype=torch.int64, device="cpu").view(torch.float64)[:, None]
        rows = torch.cat([rows, targets], -1).to(self.device)
        self.add_items(rows, _select(ids, included), _select(groups, included))
        has_support = torch.from_numpy(counts.counts[..., :3].sum(-1) > 0).sum(0)
        self.support = self.support + has_support.to(self.support)
        self.invalid = self.invalid + torch.from_numpy(counts.invalid.sum(0)).to(self.invalid)
        hows = [reading.how for reading in scored.readings]
        self.read = self.read + torch.tensor(list(map(hows.count, HOWS)), dtype=torch.float64, device=self.device)
        self.num_extra = self.num_extra + int(counts.num_extra.sum())
        self.num_skipped = self.num_skipped + len(preds) - len(included)
        return scored

    def compute(self) -> dict[str, Tensor]:
        """Compute `micro-precision`, ..., `macro-f1`, `similarity`, `exact`, `valid`, `readable` and `f1[PATH]`.

        Returns:
            Scores by name, () float64 in [0, 1]; NaN for a field that no document has.
        """
        return self.read_sums(self.sums)

    def read_sums(self, sums: Tensor) -> dict[str, Tensor]:
        # sums: (..., K)  ->  name: (...)
        return self.read_totals(sums) | self._f1_by_path(sums)

    def read_totals(self, sums: Tensor) -> dict[str, Tensor]:
        # sums: (..., K)  ->  name: (...)
        """Compute the scores over all fields, and the rates of documents."""
        rows = torch.tensor(self._leaf_rows(), dtype=torch.int64, device=sums.device)
        by_row = self.counts_by_row(sums).index_select(-2, rows)
        micro = field_scores(by_row.sum(-2))
        f1 = field_scores(by_row)["f1"]
        of_documents = sums[..., -len(DOCUMENT_COLUMNS) :]
        rates = (of_documents[..., 1:] / of_documents[..., :1]).unbind(-1)
        named = dict(zip(DOCUMENT_COLUMNS[1:], rates, strict=True))
        return {
            **{f"micro-{name}": micro[name] for name in ("precision", "recall", "f1")},
            "macro-f1": f1.nanmean(-1),
            **{name: named[name] for name in ("similarity", "exact", "valid", "readable")},
        }

    def read_fields(self, sums: Tensor) -> dict[str, Tensor]:
        # sums: (..., K)  ->  name: (..., R)
        """Compute the scores of all rows by name; items that are no scalars have no similarity."""
        scores = field_scores(self.counts_by_row(sums))
        is_leaf = torch.tensor(self.scorer.plan.is_leaf, device=sums.device)
        return scores | {"similarity": scores["similarity"].where(is_leaf, torch.nan)}

    def counts_by_row(self, sums: Tensor) -> Tensor:
        # sums: (..., K)  ->  (..., R, 5)
        """Return the counts and the sum of similarities of each row."""
        return sums[..., : -len(DOCUMENT_COLUMNS)].unflatten(-1, (-1, len(COLUMNS)))

    def _leaf_rows(self) -> list[int]:
        return [n for n, is_leaf in enumerate(self.scorer.plan.is_leaf) if is_leaf]

    def _f1_by_path(self, sums: Tensor) -> dict[str, Tensor]:
        scores = zip(self.paths, self.read_fields(sums)["f1"].unbind(-1), strict=True)
        return {f"f1[{path}]": f1 for path, f1 in scores}

    def _resampled_sums(self, replicates: int | None, seed: int | None) -> Resampled | Joined:
        resampled = self._resampled_state(replicates, seed)
        parts = [self.resampled_totals(resampled), self.resampled_fields(resampled, self._f1_by_path)]
        return combine(parts, lambda results: results[0] | results[1])

    def resampled_totals(self, resampled: Resampled) -> Resampled:
        """Return the totals with bounds of a pseudo-document of average size."""
        return resampled._replace(read=self.read_totals, bounds=self._bounds(by_field=False))

    def resampled_fields(self, resampled: Resampled, read: Callable[[Tensor], Any]) -> Resampled:
        """Return the scores of single fields with bounds of a pseudo-document that has the field."""
        return resampled._replace(read=read, bounds=self._bounds(by_field=True))

    def _bounds(self, by_field: bool) -> Bounds:
        # ->  (K,) each
        """Return the counts of the worst and the best possible document of average size."""
        sums = self.sums.cpu()
        size = self.counts_by_row(sums)[..., : len(COUNTS)].sum(-1) / sums[-len(DOCUMENT_COLUMNS)]  # (R,)
        size = size.nan_to_num(0.0)
        if by_field:
            size = size.clamp(min=1.0)
        else:
            total = size[self._leaf_rows()].sum()
            size = size / total.clamp(max=1.0) if total > 0 else size + 1 / max(len(size), 1)
        ends = []
        for row, rates in ((size.new_tensor([0, 0.5, 0, 0, 0]), 0.0), (size.new_tensor([1, 0, 0, 0, 1]), 1.0)):
            of_documents = size.new_tensor([1.0] + [rates] * (len(DOCUMENT_COLUMNS) - 1))
            ends.append(torch.cat([(size[:, None] * row).flatten(), of_documents]))
        return Bounds(ends[0], ends[1])

    def scoring_options(self) -> dict[str, Any]:
        """Return the options that two metrics must share to be compared."""
        options = constructor_options(self) | vars(self.scorer.options)
        return {name: value for name, value in options.items() if name not in self.model_options}

    def corrected(
        self, other: FieldScores, comparisons: dict[str, Comparison], correction: str
    ) -> dict[str, Comparison]:
        """Correct the comparisons jointly for all fields in which the two models differ in at least one document."""
        with self._whole_state("comparison"), other._whole_state("comparison"):
            sums = [self.counts_by_row(x._resampled_state(None, None).weighted) for x in (self, other)]
        differs = (sums[0] != sums[1]).any(-1).any(0)
        names = [f"f1[{self.paths[n]}]" for n in self._leaf_rows() if differs[n]]
        if not names:
            return comparisons
        return comparisons | dict(zip(names, corrected([comparisons[name] for name in names], correction), strict=True))

    def explain(self, pred: Any, ref: Any) -> Explanation:
        """Align a prediction with its reference by the options of the metric, without changing the state.

        Args:
            pred: An answer, see `update`.
            ref: A reference.
        """
        return explain(self.scorer, pred, ref)

    def report(self, *, confidence: float = 0.95) -> FieldReport:
        """Return the table of all fields, with intervals unless `replicates` is 0.

        Args:
            confidence: Mass of the intervals, in (0, 1).
        """
        return FieldReport(copy.deepcopy(self), confidence)  # of the documents so far


def _select(names: Any, indices: list[int]) -> Any:
    if names is None:
        return None
    return names[indices] if isinstance(names, Tensor) else [names[n] for n in indices]


def _digest(reference: Any) -> int:
    """Return a hash of a reference, by which comparisons check that both models had the same references."""
    try:
        text = json.dumps(reference, sort_keys=True, default=_json_value)
    except (TypeError, ValueError, RecursionError):  # keys of several types, or no JSON
        text = repr(reference)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") >> 1


def _json_value(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if json_kind(value) == "other" and (parts := object_of(value)) is not None:
        return dict(parts)
    return array_of(value) or repr(value)


def field_scores(counts: Tensor) -> dict[str, Tensor]:
    # counts: (..., 5)  ->  name: (...)
    """Return precision, recall, F1 and mean similarity; 0 / 0 is NaN."""
    correct, wrong, missed, invented, similarity = counts.unbind(-1)
    support, predicted = correct + wrong + missed, correct + wrong + invented
    return {
        "precision": correct / predicted,
        "recall": correct / support,
        "f1": 2 * correct / (support + predicted),
        "similarity": similarity / (correct + wrong),
    }
