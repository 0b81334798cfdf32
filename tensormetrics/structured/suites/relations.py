"""Relations between two mentions."""

from collections.abc import Iterable, Sequence

from torch import Tensor

from ... import _checks
from ..objects.columns import numbers
from ._label_scores import LabelScores
from ._tables import items_of, padded
from .structures import Relation, RelationSet


class RelationScores(LabelScores):
    """Precision, recall and F1 of relations, right where type and both mentions are, in [0, 1]; higher is better.

    `labels` names the types 0, 1, ... and adds a score for each, such as `f1[born-in]`; then the average may also be
    "types", the mean over types that occur, or "weighted", by the number of reference relations. Repeats are counted.
    Other arguments: see `CountMetric`.
    """

    def update(
        self,
        pred_relations: Tensor,  # (..., N, F) int: type, then what tells subject and object, such as their ends
        ref_relations: Tensor,  # (..., M, F) int
        n_pred: Tensor | None = None,  # (...)
        n_ref: Tensor | None = None,  # (...)
    ) -> None:
        """Add documents."""
        _checks.shape("pred_relations", pred_relations, "...", "N", "F")
        *batch, _, width = pred_relations.shape
        _checks.shape("ref_relations", ref_relations, *batch, "M", width)
        _checks.integral("pred_relations", pred_relations)
        _checks.integral("ref_relations", ref_relations)
        _checks.same_device(pred_relations=pred_relations, ref_relations=ref_relations)
        equal = (pred_relations[..., :, None, :] == ref_relations[..., None, :, :]).all(-1)
        self.add_matching(equal.float(), pred_relations[..., 0], ref_relations[..., 0], n_pred, n_ref)

    def update_relations(
        self,
        preds: Sequence[RelationSet | Iterable[Relation]],
        refs: Sequence[RelationSet | Iterable[Relation]],
    ) -> None:
        """Add documents given as `RelationSet`s or collections of `Relation`s, whose types are among the labels."""
        _checks.same_length(preds=preds, refs=refs)
        types = numbers()
        for label in self.labels or ():
            types[label]

        tables = []
        for name, side in (("preds", preds), ("refs", refs)):
            documents, relations = items_of(side, "relations", Relation, name)
            columns = [[types[relation.type] for relation in relations]]
            for mentions in ([relation.subj for relation in relations], [relation.obj for relation in relations]):
                columns += [mention.left for mention in mentions], [mention.right for mention in mentions]
            tables.append(padded(map(len, documents), columns, self.device))
        if self.labels is not None and len(types) > len(self.labels):
            raise ValueError(f"labels: got relations of {[*types][len(self.labels) :]}, wanted some of {self.labels}")
        rows, lengths = zip(*tables, strict=True)
        self.update(*rows, *lengths)
