"""Claim: 10,000 permutations take a tenth of numpy's time, exact p-values of 20+20 words some 0.03 s, of 25+25 a
second; 1,000 RNSB fits take under a second, 1,000 bootstrap replicates a third of numpy's time; batches of WEAT queries
are faster than a loop in numpy, and single small ones not slower.

Equal values are asserted before anything is timed; rivals take turns in one process; times are medians.
"""

import functools
import itertools
import resource
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import scipy
import torch
from _common import Table, arguments
from _machine import Machine, measured

from tensormetrics import association
from tensormetrics.association import functional

NEEDS = ("scipy",)
DIMS = 300
SMALL = {"turns": 2, "size": 256, "copied": 2**20}  # sizes of a quick run's measurement of the machine
NOTES = (
    "A batch is read twice: torch has no operator for norms and products in one pass. Norms come from memory and "
    "take two fifths of the time at 25+25, products from a cache a third, and 44 operators a piece of some 35 "
    "queries the rest; smaller pieces cost more in operators than nearer caches save. The share of the limit is "
    "that of one reading, at the rate of a copy."
)


def random_sets(*shapes: tuple[int, ...]) -> tuple[list[torch.Tensor], list[np.ndarray]]:
    tensors = [torch.randn(*shape, DIMS, dtype=torch.float64) for shape in shapes]
    return tensors, [t.numpy() for t in tensors]


def unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


def numpy_associations(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    axis = unit(a).mean(0) - unit(b).mean(0)
    return unit(x) @ axis, unit(y) @ axis


def numpy_weat(*sets: np.ndarray) -> tuple[float, float]:
    u, v = numpy_associations(*sets)
    return u.sum() - v.sum(), (u.mean() - v.mean()) / np.concatenate([u, v]).std()


def numpy_permutations(u: np.ndarray, v: np.ndarray, iterations: int, generator: np.random.Generator) -> float:
    scores, n = np.concatenate([u, v]), len(u)
    selected = np.argpartition(generator.random((iterations, len(scores))), n, axis=1)[:, :n]
    return (1 + (scores[selected].sum(1) >= u.sum() - 1e-12).sum()) / (1 + iterations)


def enumerated(u: np.ndarray, v: np.ndarray) -> float:
    scores = np.concatenate([u, v])
    sums = scores[np.array(list(itertools.combinations(range(len(scores)), len(u))))].sum(1)
    return (sums >= u.sum() - 1e-12).mean()


def numpy_bootstrap(*sets: np.ndarray, iterations: int, generator: np.random.Generator) -> np.ndarray:
    units = [unit(s) for s in sets]
    counts = [generator.multinomial(len(s), np.full(len(s), 1 / len(s)), iterations) for s in sets]
    x, y = (c @ s for c, s in zip(counts[:2], units[:2], strict=True))
    a, b = (c @ s / len(s) for c, s in zip(counts[2:], units[2:], strict=True))
    return np.quantile(((x - y) * (a - b)).sum(1), [0.025, 0.975])


def newton_step_by_step(t: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """Compute RNSB of one query by Newton's method on the dual."""
    x, y = np.concatenate([a, b]), np.repeat([1.0, -1.0], [len(a), len(b)])
    kernel, weights = x @ x.T + 1, np.zeros(len(y))
    for _ in range(100):
        wrong = scipy.special.expit(-y * (kernel @ weights))
        residual = weights - y * wrong
        if np.abs(x.T @ residual).max() <= 1e-10:
            break
        weights -= np.linalg.solve(np.eye(len(y)) + (wrong * (1 - wrong))[:, None] * kernel, residual)
    p = scipy.special.expit(-(t @ (x.T @ weights) + weights.sum()))
    return np.sum(p / p.sum() * np.log(p / p.sum() * len(p)))


def interleaved(rivals: dict[str, Callable[[], object]], repeats: int, turn: float = 0.0) -> dict[str, float]:
    """Return the median seconds per call of each rival; a turn is one call, or the calls of `turn` seconds."""
    durations: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(repeats + 1):
        for name, call in rivals.items():
            start, calls, elapsed = time.perf_counter(), 0, 0.0
            while not calls or elapsed < turn:
                call()
                calls += 1
                elapsed = time.perf_counter() - start
            durations[name].append(elapsed / calls)
    return {name: statistics.median(t[1:]) for name, t in durations.items()}  # the first is warm-up


def prepared_queries() -> list[tuple]:
    rows, metric = [], association.WEAT()
    for words in (25, 8):
        tensors, arrays = random_sets(*[(words,)] * 4)

        def ours(tensors: list[torch.Tensor] = tensors) -> list:
            measured = metric.measure(*tensors)  # both scores in one pass
            return [measured["weat"], measured["effect_size"]]

        np.testing.assert_allclose([v.item() for v in ours()], numpy_weat(*arrays), rtol=1e-10)
        np.testing.assert_allclose([functional.weat(*tensors), functional.weat_effect_size(*tensors)], ours())
        durations = interleaved({"ours": ours, "numpy": functools.partial(numpy_weat, *arrays)}, 500)
        rows.append((f"weat and its effect size, {words}+{words}", durations, "<= numpy"))
        tensors, arrays = random_sets(*[(1000, words)] * 4)
        expected = np.array([numpy_weat(*query) for query in zip(*arrays, strict=True)]).T
        np.testing.assert_allclose(torch.stack(ours(tensors)), expected, rtol=1e-9, atol=1e-12)

        def loop(arrays: list[np.ndarray] = arrays) -> list:
            return [numpy_weat(*query) for query in zip(*arrays, strict=True)]

        durations = interleaved({"ours": functools.partial(ours, tensors), "numpy": loop}, 7)
        read = sum(t.nbytes for t in tensors)
        rows.append((f"the same, batch of 1,000 queries, {words}+{words}", durations, "<= numpy / 5", read))
    return [*rows, ragged_queries(metric)]


def ragged_queries(metric: association.WEAT) -> tuple:
    tensors, arrays = random_sets(*[(300, 25)] * 4)
    sizes = torch.randint(3, 26, (4, 300))
    sets = [functional.WordSet(t, torch.arange(25) < n[:, None]) for t, n in zip(tensors, sizes, strict=True)]
    queries = [
        [s[:n] for s, n in zip(query, lengths, strict=True)]
        for *query, lengths in zip(*arrays, sizes.T.tolist(), strict=True)
    ]

    def ours() -> list:
        measured = metric.measure(*sets)
        return [measured["weat"], measured["effect_size"]]

    def loop() -> list:
        return [numpy_weat(*query) for query in queries]

    np.testing.assert_allclose(torch.stack(ours()), np.array(loop()).T, rtol=1e-9, atol=1e-12)
    durations = interleaved({"ours": ours, "numpy": loop}, 7)
    return "the same, batch of 300 ragged queries of 3 to 25", durations, "<= numpy"


def permutations() -> list[tuple]:
    u, v = torch.randn(2, 25, dtype=torch.float64)
    generator = np.random.default_rng(0)
    rivals = {
        "ours": lambda: functional.permutation_p_value(u, v, method="approximate", replicates=10_000),
        "numpy": lambda: numpy_permutations(u.numpy(), v.numpy(), 10_000, generator),
    }
    p, q = rivals["ours"]().item(), rivals["numpy"]()
    assert abs(p - q) < 6 * (p * (1 - p) / 5_000) ** 0.5, (p, q)
    rows = [("10,000 permutations, 25+25", interleaved(rivals, 15), ">= 3 x"), ragged_permutations()]
    small = u[:8].numpy().round(1), v[:8].numpy().round(1)  # with ties
    assert abs(functional.permutation_p_value(*map(torch.tensor, small)).item() - enumerated(*small)) < 1e-12
    for words, repeats, target in ((20, 5, "<= 0.2 s"), (25, 3, "<= 2.5 s")):
        exact = functools.partial(functional.permutation_p_value, u[:words], v[:words], method="exact")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        p = exact().item()
        memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        sampled = functional.permutation_p_value(u[:words], v[:words], method="approximate", replicates=200_000).item()
        assert abs(p - sampled) < 4 * (p * (1 - p) / 200_000) ** 0.5 + 1e-5, (p, sampled)
        durations = interleaved({"ours": exact}, repeats)
        rows.append((f"exact p-value, {words}+{words} ({memory:.0f} MB more at the peak)", durations, target))
    return rows


def ragged_permutations() -> tuple:
    """Measure 200 tests of 5 to 25 words with tied scores."""
    scores = torch.randint(-5, 6, (2, 200, 25)).double() / 8
    sizes = torch.randint(5, 26, (2, 200))
    sets = [functional.WordSet(s, torch.arange(25) < size[:, None]) for s, size in zip(scores, sizes, strict=True)]
    pairs = [(u[:n].numpy(), v[:m].numpy()) for u, v, n, m in zip(*scores, *sizes.tolist(), strict=True)]
    generator = np.random.default_rng(0)

    def ours() -> torch.Tensor:
        return functional.permutation_p_value(*sets, method="approximate", replicates=1000)

    def loop() -> list[float]:
        return [numpy_permutations(u, v, 1000, generator) for u, v in pairs]

    p = ours()
    assert ((p - torch.tensor(loop())).abs() < 6 * (p * (1 - p) / 500).sqrt() + 1e-2).all()
    return "1,000 permutations of 200 ragged tests with ties", interleaved({"ours": ours, "numpy": loop}, 7), ">= 3 x"


def rnsb_fits() -> list[tuple]:
    tensors, arrays = random_sets((1000, 25), (1000, 25), (1000, 25))

    def loop() -> list:
        return [newton_step_by_step(*query) for query in zip(*arrays, strict=True)]

    np.testing.assert_allclose(functional.rnsb(*tensors), loop(), rtol=1e-7)
    durations = interleaved({"ours": functools.partial(functional.rnsb, *tensors), "numpy": loop}, 3)
    return [("RNSB, 1,000 fits of 25+25 words", durations, "<= 1 s")]


def bootstraps() -> list[tuple]:
    return [bootstrap_of(25, 25, 25, 25), bootstrap_of(7, 25, 12, 19)]


def bootstrap_of(*sizes: int) -> tuple:
    tensors, arrays = random_sets(*[(size,) for size in sizes])
    generator = np.random.default_rng(0)
    rivals = {
        "ours": lambda: functional.bootstrap_interval(functional.weat, *tensors, replicates=1000),
        "numpy": lambda: numpy_bootstrap(*arrays, iterations=1000, generator=generator),
    }
    ours, theirs = (np.array([float(bound) for bound in rivals[name]()[-2:]]) for name in ("ours", "numpy"))
    assert np.abs(ours - theirs).max() < 0.15 * (theirs[1] - theirs[0]), (ours, theirs)
    words = "{}+{} to {}+{}".format(*sizes)
    return f"bootstrap, 1,000 replicates of WEAT, {words}", interleaved(rivals, 15), ">= 3 x"


def cells(measure: Callable[[], list[tuple]], machine: Callable[[], Machine]) -> Iterator[tuple[str, ...]]:
    with torch.no_grad():
        for name, durations, target, *read in measure():
            ours, numpy = durations["ours"], durations.get("numpy")
            rival = (f"{1e3 * numpy:.3g}", f"{numpy / ours:.2f}") if numpy else ("-", "-")
            fraction = f"{machine().fraction(ours, copied=read[0]):.0%}" if read else "-"
            yield name, str(torch.get_num_threads()), f"{1e3 * ours:.3g}", *rival, target, fraction


def main() -> None:
    options = arguments(__doc__, ("cpu",))
    torch.manual_seed(0)
    columns = ("operation", "threads", "ours", "numpy", "numpy / ours", "wanted", "share of the limit")
    notes = f"{DIMS} dimensions, float64, medians in ms. Equality was asserted before timing, the rivals took turns."
    notes += f"\n{NOTES}"
    title = "Association functions on prepared tensors against vectorised numpy"
    table = Table(options, title, columns, notes, ("numpy", "scipy"))
    parts = (permutations, prepared_queries, rnsb_fits, bootstraps)  # first the one that measures peak memory
    for threads in (1,) if options.quick else (1, torch.get_num_threads()):
        torch.set_num_threads(threads)
        # Rates with this number of threads.
        machine = functools.cache(functools.partial(measured, **SMALL if options.quick else {}))
        for part in parts[1:] if options.quick else parts:
            table.add(cells(part, machine))
    table.finish()


if __name__ == "__main__":
    main()
