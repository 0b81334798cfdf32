"""Relations between the items of two small collections, in plain Python."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from ...tensors.constraints import Constraint


def heaviest_relation(gain: list[list[float]], constraint: Constraint) -> float:
    """Compute the `set_overlap` of a small table."""
    columns = [*zip(*gain, strict=True)]
    if not columns:
        return 0.0
    if constraint is Constraint.MANY_TO_MANY:
        return sum(map(sum, gain))
    if constraint is not Constraint.ONE_TO_ONE:
        return sum(map(max, gain if constraint is Constraint.ONE_TO_MANY else columns))
    rows = gain if len(columns) <= len(gain) else columns
    best = {0: 0.0}  # by the bit set of used columns
    for row in rows:
        for used, value in list(best.items()):
            for column, weight in enumerate(row):
                if not used >> column & 1:
                    after = used | 1 << column
                    best[after] = max(best.get(after, 0.0), value + weight)
    return max(best.values())


def equal_pairs(
    x: Sequence[Hashable], y: Sequence[Hashable], constraint: Constraint, distinct: bool
) -> list[tuple[int, int]]:
    """Pair equal items: the n-th with the n-th if one-to-one, with the first if the constraint allows to reuse it."""
    positions: defaultdict[Hashable, list[int]] = defaultdict(list)
    for b, key in enumerate(y):
        positions[key].append(b)
    by_row, by_column = constraint.once
    seen: Counter[Hashable] = Counter()
    pairs = []
    for a, key in enumerate(x):
        matches, n = positions.get(key, []), seen[key]
        seen[key] += 1
        if n and (distinct or constraint is Constraint.MANY_TO_ONE):
            continue
        if distinct or by_row:
            matches = matches[n * by_column :][:1]
        pairs += [(a, b) for b in matches]
    return pairs


def chains(gain: list[list[float]], constraint: Constraint) -> list[list[float]]:
    # ->  (N + 1, M + 1), 0 in the last row and column
    """Compute the weight of the heaviest chain of the items from each pair of positions on."""
    n, m = len(gain), len(gain[0]) if gain else 0
    down, right = constraint.once
    any_relation = constraint is Constraint.MANY_TO_MANY
    best = [[0.0] * (m + 1) for _ in range(n + 1)]
    for a in reversed(range(n)):
        for b in reversed(range(m)):
            skip = max(best[a + 1][b], best[a][b + 1])
            best[a][b] = gain[a][b] + skip if any_relation else max(skip, gain[a][b] + best[a + down][b + right])
    return best


def heaviest_chain(gain: list[list[float]], constraint: Constraint) -> list[tuple[int, int]]:
    """Return the pairs of the heaviest chain; of equal ones, that of the first prediction, then the first reference."""
    n, m = len(gain), len(gain[0]) if gain else 0
    down, right = constraint.once
    best = chains(gain, constraint)
    pairs = []
    a = b = 0
    while a < n and b < m:
        if constraint is Constraint.MANY_TO_MANY:
            if gain[a][b] > 0:
                pairs.append((a, b))
            a, b = (a, b + 1) if best[a][b + 1] >= best[a + 1][b] else (a + 1, b)
            continue
        partner = next(
            (c for c in range(b, m) if gain[a][c] > 0 and gain[a][c] + best[a + down][c + right] == best[a][b]), None
        )
        if partner is None:
            a += 1
        else:
            pairs.append((a, partner))
            a, b = a + down, partner + right
    return pairs
