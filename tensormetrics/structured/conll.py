"""Reader of coreference in CoNLL-2011/2012 files."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

Span = tuple[int, int]


def read_conll_coref(lines: Iterable[str], column: int = -1) -> Iterator[tuple[str, list[list[Span]]]]:
    """Yield each document's name and its clusters of (first, last) token numbers, counted through the document.

    `column` holds brackets such as `(3`, `3)`, `(3)`, joined by `|`. A document stands between `#begin document` and
    `#end document`. What stands outside of them, and a bracket that never opens or never closes, is a ValueError with
    the line.
    """
    name, token, number = None, 0, 0
    clusters: dict[str, list[Span]] = defaultdict(list)
    opened: dict[str, list[tuple[int, int]]] = defaultdict(list)  # cluster -> (token, line) of open brackets
    for number, line in enumerate(lines, 1):
        if line.startswith("#begin document"):
            if name is not None:
                raise ValueError(f"line {number}: a document begins, but {name!r} has not ended")
            name, token = line.removeprefix("#begin document").strip(), 0
            clusters.clear()
            opened.clear()
        elif line.startswith("#end document"):
            for cluster, starts in opened.items():
                if starts:
                    raise ValueError(f"line {starts[-1][1]}: bracket ({cluster} is never closed")
            if name is None:
                raise ValueError(f"line {number}: a document ends, but none has begun")
            yield name, list(clusters.values())
            name = None
        elif not line.startswith("#") and (fields := line.split()):
            if name is None:
                raise ValueError(f"line {number}: got {fields[0]!r} outside of '#begin document' and '#end document'")
            for opening, cluster, closing in re.findall(r"(\()?(\w+)(\))?", fields[column]):
                if opening:
                    opened[cluster].append((token, number))
                if closing:
                    if not opened[cluster]:
                        raise ValueError(f"line {number}: bracket {cluster}) was never opened")
                    clusters[cluster].append((opened[cluster].pop()[0], token))
            token += 1
    if name is not None:
        raise ValueError(f"line {number}: the end, but document {name!r} has not ended")
