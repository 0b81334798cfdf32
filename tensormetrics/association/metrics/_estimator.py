"""Classifiers of other libraries in the place of the logistic regression of RNSB, and how well a classifier does."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..sets.word_sets import Words


def check_estimator(estimator: Any, params: Any) -> None:
    if estimator is not None and not (
        isinstance(estimator, type) and hasattr(estimator, "fit") and hasattr(estimator, "predict_proba")
    ):
        raise TypeError(f"estimator: got {estimator!r}, wanted a class with the methods fit and predict_proba")
    if not isinstance(params, dict | None):
        raise TypeError(f"estimator_params: got a {type(params).__name__}, wanted a dict or None")
    if params and estimator is None:
        raise TypeError("estimator_params: got options without an estimator; write estimator=")


def estimated(t: Words, a: Words, b: Words, estimator: type, params: dict[str, Any]) -> Tensor:
    # ->  (..., T), the probability of class -1, when a is 1 and b is -1; NaN where either has no word
    """Each query by itself, on the host."""
    lead = torch.broadcast_shapes(
        *(s.shape[:-1] for words in (t, a, b) for s in (words.vectors[..., 0], words.weights))
    )
    queries = zip(*(_on_the_host(words, lead) for words in (t, a, b)), strict=True)
    p = np.full((lead.numel(), t.vectors.shape[-2]), np.nan)
    for i, ((words, _), (positive, a_count), (negative, b_count)) in enumerate(queries):
        if a_count.any() and b_count.any():
            x = np.concatenate([positive.repeat(a_count, 0), negative.repeat(b_count, 0)])
            model = estimator(**params)
            model.fit(x, np.repeat([1, -1], [a_count.sum(), b_count.sum()]))
            p[i] = model.predict_proba(words)[:, list(model.classes_).index(-1)]
    return torch.from_numpy(p).view(*lead, -1).to(t.vectors)


def _on_the_host(words: Words, lead: torch.Size) -> list[tuple[np.ndarray, np.ndarray]]:
    # ->  per query (W, D) and (W,)
    vectors = words.vectors.expand(*lead, *words.vectors.shape[-2:]).reshape(-1, *words.vectors.shape[-2:])
    count = words.weights.expand(*lead, words.weights.shape[-1]).reshape(-1, words.weights.shape[-1])
    return list(zip(vectors.cpu().numpy(), count.long().cpu().numpy(), strict=True))


def report(got: Sequence[bool], wanted: Sequence[bool]) -> str:
    """Precision, recall and F1 of either class, from predictions and truth; True is negative sentiment."""
    lines = [f"{'':>10}{'precision':>10}{'recall':>10}{'F1':>10}{'words':>10}"]
    for name, kind in ("positive", False), ("negative", True):
        right = sum(g == w == kind for g, w in zip(got, wanted, strict=True))
        precision, recall = right / max(got.count(kind), 1), right / max(wanted.count(kind), 1)
        f1 = 2 * right / max(got.count(kind) + wanted.count(kind), 1)
        lines.append(f"{name:>10}{precision:>10.3f}{recall:>10.3f}{f1:>10.3f}{wanted.count(kind):>10}")
    return "\n".join(lines)
