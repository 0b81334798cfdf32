"""Numbers with intervals as text."""

import math
from typing import Any

import numpy as np
import torch

MAX_LINES = 20  # of a printed result of several values
MIN_GROUPS = 10  # a printed result with fewer groups says how many there are
MAX_DECIMALS = 9
MAX_FIXED = 1e6  # from which on values are written with an exponent


def interval_text(
    value: float,
    low: float,
    high: float,
    *,
    spec: str = "",
    precision: int = 3,
    is_signed: bool = False,
    intervals: str | None = "brackets",
) -> str:
    """Write "0.084 [0.061, 0.109]" or "0.084 ± 0.024".

    Without a `spec` there are `precision` decimals, or as many as show that the ends differ from the value, or that
    many significant digits where all decimals would be 0 or a value is too long. `is_signed` writes the sign of
    positive values.
    """
    values = value, low, high
    if not spec:
        finite = [abs(x) for x in values if math.isfinite(x)]
        is_invisible = any(finite) and max(finite) < 0.5 * 10.0**-precision
        kind = "g" if is_invisible or any(x >= MAX_FIXED for x in finite) else "f"
        ends = [end for end in (low, high) if abs(end - value) > 10.0**-MAX_DECIMALS]
        while (
            kind == "f"
            and precision < MAX_DECIMALS
            and any(f"{x:.{precision}f}" == f"{value:.{precision}f}" for x in ends)
        ):
            precision += 1
        spec = f".{precision}{kind}"
    signed_spec = f"+{spec}" if is_signed and spec[0] in ".0123456789" else spec
    if intervals is None:
        return format(value, signed_spec)
    if intervals == "plusminus":
        return f"{value:{signed_spec}} ± {(high - low) / 2:{spec}}"
    value_text, low_text, high_text = (format(x, signed_spec) for x in values)
    return f"{value_text} [{low_text}, {high_text}]"


def p_value_texts(result: Any) -> list[str]:
    """Return "p = 0.012" of each difference, or "p < 0.001" for 0.000; the corrected p-value where there is one."""
    is_corrected = result.p_corrected is not None
    p_values = value_rows(result, ("p_corrected" if is_corrected else "p_value",))
    texts = ["p < 0.001" if p < 0.0005 else f"p = {p:.3f}" for (p,) in p_values]
    return [f"{'corrected ' * is_corrected}{text}" for text in texts]


def label_texts(result: Any) -> list[str]:
    """Return a text for each value: its labels or indices, "" for a single value."""
    shape, labels = result.low.shape, result.labels
    if not shape:
        return [""]
    last = labels or [str(i) for i in range(shape[-1])]
    return ["/".join([*map(str, index), str(label)]) for index in np.ndindex(*shape[:-1]) for label in last]


def value_rows(result: Any, names: tuple[str, ...] | None = None) -> list[list[float]]:
    """Return the value and both ends of each value, or what the fields `names` hold."""
    parts = [getattr(result, name) for name in names or (result.tensors[0], "low", "high")]
    return torch.stack([part.detach().double().cpu().flatten() for part in parts], 1).tolist()


def result_lines(result: Any, spec: str = "") -> list[str]:
    """Return a line for each value, at most 20; those of several values begin with their labels."""
    is_comparison = "p_value" in result.tensors
    rows = value_rows(result)[:MAX_LINES]
    intervals = None if result.confidence is None and all(math.isnan(low) for _, low, _ in rows) else "brackets"
    texts = [interval_text(*row, spec=spec, is_signed=is_comparison, intervals=intervals) for row in rows]
    if is_comparison:
        texts = [f"{text}, {p_text}" for text, p_text in zip(texts, p_value_texts(result), strict=False)]
    if result.labels is not None:
        labels = label_texts(result)[:MAX_LINES]
        width = max(map(len, labels), default=0)
        texts = [f"{label:{width}}  {text}" for label, text in zip(labels, texts, strict=True)]
    if result.low.numel() > MAX_LINES:
        texts.append(f"... {result.low.numel() - MAX_LINES:,} more")
    return texts


def description(result: Any) -> str:
    """Return confidence, items and method of a result: "95 %, 200 items in 20 groups, bayesian bootstrap"."""
    parts = [] if result.confidence is None else [f"{100 * result.confidence:.4g} %"]
    if result.items is not None:
        is_grouped = result.groups is not None and result.groups != result.items
        parts.append(
            f"{result.items:,} items"
            + (f" in {result.groups:,} group{'s' * (result.groups != 1)}" if is_grouped else "")
        )
    if source := getattr(result, "method", None) or getattr(result, "test", None):
        parts.append(source)
    if result.groups is not None and result.groups < MIN_GROUPS:
        parts.append(f"only {result.groups} group{'s' * (result.groups != 1)}")
    if missing := result.details.get("missing"):
        parts.append(f"{missing:,} missing")
    undefined = torch.as_tensor(result.details.get("nan_fraction", 0.0))
    if undefined.numel() and (largest := float(undefined.max())) > 0:
        parts.append(f"undefined in up to {100 * largest:.3g} % of the draws")
    return ", ".join(parts)
