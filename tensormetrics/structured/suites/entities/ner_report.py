"""The report of named entities that seqeval's users know."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from .spans import SpanScores, read_both
from .tags import MODES, Unfit, Vocabulary, documents_of, warn_of_both

FEW_SPANS = 10  # from which on tags of no model and tags of one are told apart
MOST_LOOSE = 0.2  # fraction of spans begun by I or E: more of them are a scheme, such as IOB1, fewer are errors

Tags = Iterable[Sequence[str]]


def ner_report(
    pred: Tags | None = None,
    ref: Tags | None = None,
    mode: str = "lenient",
    suffix: bool = False,
    digits: int = 2,
    *,
    y_true: Tags | None = None,
    y_pred: Tags | None = None,
    **options: Any,
) -> str:
    """Return the text of `SpanScores.report` for lists of tags, a row for each label that is met in them.

    Without `replicates` it is letter by letter seqeval's `classification_report(ref, pred)`, with `mode` other than
    "lenient" that of its strict mode, except for the last digit of a score that lies halfway between two printed
    numbers. Scores here are ratios of counts, 0.625 is printed as 0.62, as Python rounds it; seqeval computes F1 from
    precision and recall, whose rounding errors may make it print 0.63.

    Args:
        pred: Predicted tags, a list for each document.
        ref: Tags of the reference.
        mode: How tags are read, see `read_tags`; seqeval's `mode="strict", scheme=IOB2` is "iob2".
        suffix: Tags are `<label>-<prefix>`.
        digits: Digits behind the point.
        y_true: The reference, by seqeval's name.
        y_pred: The prediction, by seqeval's name.
        **options: Those of `SpanScores`, such as `replicates=1000`.

    Raises:
        TypeError: If a side is missing, or has two names.
        ValueError: If a tag is none, or numbers of documents or tags differ.

    Warns:
        UserWarning: If `pred` and `ref` look swapped: only `ref` has spans that begin by I, as errors of models do.

    Example:
        >>> pred, ref = [["B-PER", "O", "B-LOC"]], [["B-PER", "O", "B-PER"]]
        >>> print(ner_report(y_true=ref, y_pred=pred))  # doctest: +NORMALIZE_WHITESPACE
                      precision    recall  f1-score   support
        <BLANKLINE>
                 LOC       0.00      0.00      0.00         0
                 PER       1.00      0.50      0.67         2
        <BLANKLINE>
           micro avg       0.50      0.50      0.50         2
           macro avg       0.50      0.25      0.33         2
        weighted avg       1.00      0.50      0.67         2
        <BLANKLINE>
    """
    scheme = options.get("scheme")
    name = getattr(scheme, "__name__", scheme)
    if mode == "strict" or str(name).lower() in MODES:
        raise ValueError(
            f"got mode={mode!r} and scheme={name!r}, which are seqeval's; write mode='iob2' for its strict IOB2, "
            f"wanted one of {', '.join(map(repr, MODES))}"
        )
    sides = (
        documents_of(_chosen(pred=pred, y_pred=y_pred), "pred"),
        documents_of(_chosen(ref=ref, y_true=y_true), "ref"),
    )
    known = Vocabulary((), suffix)
    for side in sides:
        known.learn(side)
    scores = SpanScores(labels=sorted(known.labels) or None, **options)
    known = Vocabulary(scores.labels or (), suffix)
    counts, unfit = scores.count_tags(known, *read_both(*sides, known), mode)
    warn_of_both(*unfit, mode)
    if y_true is None and y_pred is None:
        _warn_of_swap(*unfit)
    scores.add_update(counts)
    return scores.report(digits)


def _chosen(**sides: Tags | None) -> Tags:
    given = {name: side for name, side in sides.items() if side is not None}
    if len(given) != 1:
        raise TypeError(f"got {' and '.join(given) or 'neither'} of {', '.join(sides)}, wanted one of them")
    return next(iter(given.values()))


def _warn_of_swap(pred: Unfit, ref: Unfit) -> None:
    are_many = min(pred.spans, ref.spans) >= FEW_SPANS
    if are_many and pred.loose == 0 < ref.loose <= MOST_LOOSE * ref.spans:
        warnings.warn(
            f"ref: {ref.loose} of {ref.spans} spans begin by I, as errors of models do, but none of pred does; if they "
            "are swapped, as in seqeval, write ner_report(y_true=..., y_pred=...)",
            stacklevel=3,
        )
