"""Report of named entities in the format of seqeval."""

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from .spans import SpanScores, read_pair
from .tags import MODES, Vocabulary, documents_of_pair, is_path, warn_about_both, warn_about_swap

Tags = Iterable[Sequence[str]] | str | PathLike


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
    """Return the text of `SpanScores.report` for lists of tags, a row for each label that occurs in them.

    Without `replicates` the text equals seqeval's `classification_report(ref, pred)`, for `mode` other than "lenient"
    in its strict mode, except for the last digit of a score halfway between two printed numbers. Scores here are ratios
    of counts: 0.625 is printed as 0.62, as Python rounds it; seqeval computes F1 from precision and recall and may
    print 0.63 because of their rounding errors.

    Args:
        pred: Predicted tags, a list for each document, or the path of a file; one file may have both, see
            `SpanScores.update_tags`.
        ref: Reference tags.
        mode: How tags are read, see `read_tags`; seqeval's `mode="strict", scheme=IOB2` is "iob2".
        suffix: Tags are `<label>-<prefix>`.
        digits: Digits after the decimal point.
        y_true: The reference, by seqeval's name.
        y_pred: The prediction, by seqeval's name.
        **options: Options of `SpanScores` other than `labels`, such as `replicates=1000`.

    Returns:
        The text, which ends in a line break.

    Raises:
        TypeError: If prediction or reference is missing, or passed by two names.
        ValueError: If a tag or an option is invalid, or numbers of documents or tags differ.

    Warns:
        UserWarning: If `pred` and `ref` look swapped: only `ref` has spans that begin with I, a typical model error.

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
    if scheme in ("exact", "partial"):
        raise ValueError(f"scheme: got {scheme!r}, which ignores the labels of a report; wanted 'strict' or 'type'")
    pred = _select_alias(pred=pred, y_pred=y_pred)
    has_both = is_path(pred) and ref is None and y_true is None
    inputs = documents_of_pair(pred, None if has_both else _select_alias(ref=ref, y_true=y_true), suffix)
    vocabulary = Vocabulary((), suffix)
    for tags in inputs:
        vocabulary.learn(tags)
    scores = SpanScores(labels=sorted(vocabulary.labels) or None, **{"replicates": 0, **options})
    vocabulary = Vocabulary(scores.labels or (), suffix)
    counts, errors = scores.count_tags(vocabulary, *read_pair(*inputs, vocabulary), mode)
    warn_about_both(*errors, mode)
    if y_true is None and y_pred is None:
        warn_about_swap(*errors)
    scores.add_update(counts)
    return scores.report(digits)


def _select_alias(**aliases: Tags | None) -> Tags:
    values = {name: tags for name, tags in aliases.items() if tags is not None}
    if len(values) != 1:
        raise TypeError(f"got {' and '.join(values) or 'neither'} of {', '.join(aliases)}, wanted one of them")
    return next(iter(values.values()))
