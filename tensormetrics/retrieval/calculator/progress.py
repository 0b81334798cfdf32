"""How far a long computation is."""

import sys
import time
from collections.abc import Iterator
from typing import Any

SECONDS = 5.0  # between two lines


def progressed(tiles: Iterator[tuple[Any, Any]], total: int) -> Iterator[tuple[Any, Any]]:
    """The tiles as they come, with a bar of tqdm, or where that is missing a line on stderr every few seconds."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        yield from _with_lines(tiles, total)
        return
    with tqdm(total=total, unit="query") as bar:
        for rows, ranks in tiles:
            yield rows, ranks
            bar.update(len(ranks.relevant))


def _with_lines(tiles: Iterator[tuple[Any, Any]], total: int) -> Iterator[tuple[Any, Any]]:
    done, said = 0, time.monotonic()
    for rows, ranks in tiles:
        yield rows, ranks
        done += len(ranks.relevant)
        if time.monotonic() - said >= SECONDS:
            print(f"{done} of {total} queries", file=sys.stderr)
            said = time.monotonic()
