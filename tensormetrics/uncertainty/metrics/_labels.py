"""Labels and probabilities that the scores of classes refuse."""

from torch import Tensor

from ...core.native.gpu_kernels import is_tracing


def wrong_labels(target: Tensor, classes: int = 2) -> Tensor:
    # (..., N)  ->  (..., N) bool
    return (target < 0) | (target >= classes)


def check_labels(target: Tensor, classes: int = 2, preds: Tensor | None = None, refused: Tensor | None = None) -> None:
    # target: (..., N)  preds: (..., N) or (..., N, C)  refused: (..., N) bool, by default those with wrong labels
    """Raise a ValueError if some items are refused and reading this needs no wait: on a CPU, outside of compilation.

    These are items whose label is no class, or with a finite number outside [0, 1] among their `preds`.
    """
    if not target.is_cpu or is_tracing():
        return
    wrong = wrong_labels(target, classes)
    if not bool((wrong if refused is None else refused).any()):
        return
    labels = target[wrong]
    if len(labels):
        advice = "; write (target > 0).long() for labels -1 and 1" if classes == 2 and int(labels[0]) == -1 else ""
        raise ValueError(f"target: got the label {int(labels[0])}, wanted 0 to {classes - 1}{advice}")
    assert preds is not None
    function = "softmax(-1)" if preds.ndim > target.ndim else "sigmoid()"
    got = float(preds[preds.isfinite() & ((preds < 0) | (preds > 1))][0])
    raise ValueError(f"preds: got {got:g}, wanted probabilities from 0 to 1; write preds.{function} for logits")
