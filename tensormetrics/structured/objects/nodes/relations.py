"""Relations between the items of two small collections, in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from ...tensors.constraints import Constraint


def heaviest_relation(gain: list[list[float]], constraint: Constraint) -> float:
    """What `set_overlap` is of a small table."""
    columns = [*zip(*gain, strict=True)]
    if not columns:
        return 0.0
    if constraint is Constraint.MANY_TO_MANY:
        return sum(map(sum, gain))
    if constraint is not Constraint.ONE_TO_ONE:
        return sum(map(max, gain if constraint is Constraint.ONE_TO_MANY else columns))
    rows = gain if len(columns) <= len(gain) else columns
    best = {0: 0.0}  # by the set of columns that are taken, as bits
    for row in rows:
        for taken, value in list(best.items()):
            for column, own in enumerate(row):
                if not taken >> column & 1:
                    after = taken | 1 << column
                    best[after] = max(best.get(after, 0.0), value + own)
    return max(best.values())


def equal_pairs(
    x: Sequence[Hashable], y: Sequence[Hashable], constraint: Constraint, distinct: bool
) -> list[tuple[int, int]]:
    """Which equal items are paired: the n-th with the n-th one-to-one, with the first where one may be used again."""
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for b, key in enumerate(y):
        places[key].append(b)
    seen: Counter[Hashable] = Counter()
    pairs = []
    for a, key in enumerate(x):
        found, n = places.get(key, []), seen[key]
        seen[key] += 1
        if distinct and n:
            continue
        if distinct:
            found = found[:1]
        if constraint is Constraint.ONE_TO_ONE:
            found = found[n : n + 1]
        elif constraint is Constraint.ONE_TO_MANY:
            found = found[:1]
        elif constraint is Constraint.MANY_TO_ONE and n:
            found = []
        pairs += [(a, b) for b in found]
    return pairs


def chains(gain: list[list[float]], constraint: Constraint) -> list[list[float]]:
    """The weight of the heaviest chain of what is left of both sides from each pair on, and behind the last."""
    n, m = len(gain), len(gain[0]) if gain else 0
    down, right = steps(constraint)
    any_relation = constraint is Constraint.MANY_TO_MANY
    best = [[0.0] * (m + 1) for _ in range(n + 1)]
    for a in reversed(range(n)):
        for b in reversed(range(m)):
            skip = max(best[a + 1][b], best[a][b + 1])
            best[a][b] = gain[a][b] + skip if any_relation else max(skip, gain[a][b] + best[a + down][b + right])
    return best


def steps(constraint: Constraint) -> tuple[int, int]:
    """What a pair of a chain moves on by on the two sides."""
    by_row = constraint in (Constraint.ONE_TO_ONE, Constraint.ONE_TO_MANY)
    return int(by_row), int(constraint in (Constraint.ONE_TO_ONE, Constraint.MANY_TO_ONE))


def heaviest_chain(gain: list[list[float]], constraint: Constraint) -> list[tuple[int, int]]:
    """The pairs of the heaviest chain; where several are, those of the first prediction, then the first reference."""
    n, m = len(gain), len(gain[0]) if gain else 0
    down, right = steps(constraint)
    best = chains(gain, constraint)
    pairs = []
    a = b = 0
    while a < n and b < m:
        if constraint is Constraint.MANY_TO_MANY:
            if gain[a][b] > 0:
                pairs.append((a, b))
            a, b = (a, b + 1) if best[a][b + 1] >= best[a + 1][b] else (a + 1, b)
            continue
        found = next(
            (c for c in range(b, m) if gain[a][c] > 0 and gain[a][c] + best[a + down][c + right] == best[a][b]), None
        )
        if found is None:
            a += 1
        else:
            pairs.append((a, found))
            a, b = a + down, found + right
    return pairs
