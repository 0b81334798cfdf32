"""The progress bar of loops that may take minutes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(total: int, name: str, unit: str) -> Iterator[Callable[[int], Any]]:
    """Yield a function that adds a number of units; a terminal shows a bar after a second if tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda done: None
        return
    with tqdm(total=total, desc=name, unit=unit, delay=1, leave=False, disable=None) as bar:
        yield bar.update
