"""Relations between two mentions."""

from collections.abc import Iterable, Sequence

from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.resampling.weights import ResamplingUnits
from ..comparators.base import code_table
from ..tensors._lengths import in_chunks, total
from ._label_scores import LabelScores
from ._tables import items_of, numbered_rows, sizes
from .structures import Relation, RelationSet


class RelationScores(LabelScores):
    """Precision, recall and F1 of relations, which must agree in type and both mentions, in [0, 1]; higher is better.

    Labels are the types of relations. Repeats are counted.

    >>> born, died = (Relation(type, Mention(0, 0), Mention(3, 3)) for type in ("born-in", "died-in"))
    >>> metric = RelationScores(labels=["born-in", "died-in"])
    >>> metric.update_relations([[born, died]], [[born]])
    >>> metric.compute()["precision"]
    tensor(0.5000, dtype=torch.float64)
    """

    update_of_lists = "update_relations"

    def update(
        self,
        pred_relations: Tensor,
        ref_relations: Tensor,
        n_pred: Tensor | None = None,
        n_ref: Tensor | None = None,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents. Rows of a negative type do not count.

        Shapes: pred_relations: (..., N, F) int (type, then columns that identify subject and object, such as ends);
        ref_relations: (..., M, F) int; n_pred: (...); n_ref: (...). Lists of relations go to `update_relations`.
        """
        rows = {"pred_relations": pred_relations, "ref_relations": ref_relations}
        tables, lengths = self.read_rows(n_pred, n_ref, "F", **rows)
        self.add_documents(in_chunks(self._count, tables, lengths, total), **items)

    def update_relations(
        self,
        preds: Sequence[RelationSet | Iterable[Relation]],
        refs: Sequence[RelationSet | Iterable[Relation]],
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add documents as `RelationSet`s or collections of `Relation`s; their types must be among the labels."""
        checks.check_consistent_length(preds=preds, refs=refs)
        types = code_table()
        for label in self.labels or ():
            types[label]

        def read(relations: Sequence[Relation]) -> list[list[int]]:
            columns = [[types[relation.type] for relation in relations]]
            for mentions in ([relation.subj for relation in relations], [relation.obj for relation in relations]):
                columns += [[mention.left for mention in mentions], [mention.right for mention in mentions]]
            return columns

        tables, lengths = [], []
        for name, collection in (("preds", preds), ("refs", refs)):
            owners = items_of(collection, "relations", Relation, name)
            tables.append(numbered_rows(owners, read, f"{name}[{{}}].relations[{{}}]"))
            lengths.append(sizes(owners))
        if self.labels is not None and len(types) > len(self.labels):
            raise ValueError(f"labels: got relations of {[*types][len(self.labels) :]}, wanted some of {self.labels}")
        self.add_update(in_chunks(self._count, tables, lengths, total, flat=True, device=self.device), **items)

    def _count(self, pred: Tensor, ref: Tensor, n_pred: Tensor, n_ref: Tensor) -> Tensor:
        # pred: (D, N, F)  ref: (D, M, F)  ->  (D, 3) or (D, 3 L)
        return self.count_equal(pred, ref, pred[..., 0], ref[..., 0], n_pred, n_ref)
