"""Counts of documents, and their scores."""

from __future__ import annotations

from torch import Tensor

COUNTS = ("correct", "wrong", "missed", "invented")
COLUMNS = (*COUNTS, "similarity")  # of each row in the sums
DOCUMENT_COLUMNS = ("documents", "readable", "valid", "exact", "similarity")  # after the rows in the sums
FIELD_SCORES = ("precision", "recall", "f1", "similarity")


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
