"""Quantities of sets of words: tensors, queries in words, tables of queries, and their p-values."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tensormetrics import association
from tensormetrics.association import functional

from .quantity import EntryPoint, Quantity, updated

Sets = tuple[Tensor, ...]  # groups of sets are (G, W, D)


def random_sets(shapes: str, words: int = 4, dtype: torch.dtype = torch.float64) -> Callable[[Generator], Sets]:
    def sample(generator: Generator) -> Sets:
        return tuple(
            (3 * torch.randn(*([3] if s.isupper() else []), words, 5, generator=generator)).to(dtype) for s in shapes
        )

    return sample


def changed_sets(shapes: str, change: Callable[[Tensor], Tensor], index: int = 0) -> Callable[[Generator], Sets]:
    """Make a function that samples sets and changes the one at `index`."""

    def sample(generator: Generator) -> Sets:
        sample_sets = list(random_sets(shapes)(generator))
        sample_sets[index] = change(sample_sets[index])
        return tuple(sample_sets)

    return sample


def data_of(shapes: str) -> dict[str, Callable[[Generator], Sets]]:
    return {
        "ordinary": random_sets(shapes),
        "single": random_sets(shapes, 1),
        "float32": random_sets(shapes, dtype=torch.float32),
        "half": random_sets(shapes, dtype=torch.float16),
        "equal words": changed_sets(shapes, torch.ones_like),
        "all equal": lambda generator: tuple(map(torch.ones_like, random_sets(shapes)(generator))),
        "a zero vector": changed_sets(shapes, lambda x: x * (torch.arange(x.shape[-2]) > 0)[:, None], -1),
        "not a number": changed_sets(shapes, lambda x: x / 0),
        "other dimensions": changed_sets(shapes, lambda x: x[..., :-1], -1),
    }


def as_query(targets: int, word_sets: Sets) -> tuple[association.Query, association.WordEmbeddingModel]:
    """Convert sets to a query and a model with their words; the first `targets` tensors are target sets."""
    parts = [
        (k < targets, vectors)
        for k, word_set in enumerate(word_sets)
        for vectors in (word_set if word_set.ndim > 2 else [word_set])
    ]
    words = [[f"w{k}-{i}" for i in range(len(vectors))] for k, (_, vectors) in enumerate(parts)]
    model = association.WordEmbeddingModel.from_tensor(torch.cat([vectors for _, vectors in parts]), sum(words, []))
    named = [(is_target, names) for (is_target, _), names in zip(parts, words, strict=True)]
    return association.Query([n for t, n in named if t], [n for t, n in named if not t]), model


FUNCTIONS: dict[str, EntryPoint] = {"ml_eat": lambda *word_sets: functional.ml_eat(*word_sets).effect}


def metric_quantity(
    name: str,
    shapes: str,
    targets: int,
    function: str,
    more: dict[str, EntryPoint] | None = None,
    *,
    rtol: float = 1e-9,
    query_of: Callable[..., Any] = as_query,
    **options: Any,
) -> Quantity:
    metric_class = getattr(association, name)

    def of_query(*word_sets: Tensor) -> Any:
        query, model = query_of(targets, word_sets)
        return metric_class(**options).run_query(query, model).value

    def of_table(*word_sets: Tensor) -> Any:
        query, model = query_of(targets, word_sets)
        return association.run_queries(metric_class(**options), [query], [model]).cells[0][0]

    first = FUNCTIONS.get(function) or getattr(association.functional, function)
    entry_points: dict[str, EntryPoint] = {
        f"association.{function}": first,
        **(more or {}),
        f"association.{name}, measure": lambda *word_sets: next(
            iter(metric_class(**options).measure(*word_sets).values())
        ),
        f"association.{name}, evaluate": lambda *word_sets: metric_class(**options).evaluate(*word_sets).value,
        f"association.{name}, run_query": of_query,
        "association.run_queries": of_table,
    }
    entry_points[f"association.{name}"] = lambda *word_sets: updated(
        metric_class(**options), *(word_set[None] for word_set in word_sets)
    ).compute()
    reasons = {
        "other dimensions": "a model has one dimension",
        "not a number": "a model has finite vectors",
    }
    names_in_words = (
        f"association.{name}, run_query",
        "association.run_queries",
    )
    skip_reasons = dict.fromkeys(names_in_words, reasons)
    if "association.gweat, two groups" in entry_points:
        skip_reasons["association.gweat, two groups"] = {"other dimensions": "stacks the sets"}
    return Quantity(data_of(shapes), entry_points, skip_reasons=skip_reasons, rtol=rtol)


def scaled_gweat(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Compute WEAT from GWEAT of two groups, which is a known multiple of it."""
    return 2 * x.shape[-2] * functional.gweat(torch.stack([x, y], -3), torch.stack([a, b], -3))


def ripa_of_words(*word_sets: Tensor) -> Tensor:
    return functional.ripa(*word_sets, per_word=True)[0]


def sample_effect(*word_sets: Tensor) -> Tensor:
    return functional.weat_effect_size(*word_sets, correction=1)


SCORES = {
    "WEAT": metric_quantity("WEAT", "xyab", 2, "weat", {"association.gweat, two groups": scaled_gweat}),
    "WEAT's effect size": metric_quantity("WEAT", "xyab", 2, "weat_effect_size", return_effect_size=True),
    "effect of ML-EAT": metric_quantity("MLEAT", "xyab", 2, "ml_eat", {"association.weat_effect_size": sample_effect}),
    "single-category WEAT": metric_quantity(
        "SCWEAT", "wab", 1, "mean_sc_weat", {"association.sc_weat": lambda *sets: functional.sc_weat(*sets).mean(-1)}
    ),
    "RND": metric_quantity("RND", "xya", 2, "rnd"),
    "ECT": metric_quantity("ECT", "xya", 2, "ect"),
    "RIPA": metric_quantity("RIPA", "xya", 2, "ripa", {"association.ripa, per word": ripa_of_words}),
    "MAC": metric_quantity("MAC", "tA", 1, "mac"),
    "SAME": metric_quantity("SAME", "tG", 1, "same"),
    "GWEAT": metric_quantity("GWEAT", "XA", 1, "gweat"),
    "RNSB": metric_quantity("RNSB", "tab", 1, "rnsb", rtol=1e-6),
    "direct bias": metric_quantity("DirectBias", "tG", 1, "direct_bias"),
}


def tested(name: str, **options: Any) -> EntryPoint:
    return lambda *word_sets: (
        getattr(association, name)(p_value=True, **options).evaluate(*word_sets).details["p_value"]
    )


def lpbs_data() -> dict[str, Callable[[Generator], Sets]]:
    def sample(items: int) -> Callable[[Generator], Sets]:
        return lambda g: tuple(torch.rand(items, generator=g).add(0.01).log().double() for _ in range(4))

    return {
        "ordinary": sample(6),
        "one sentence": sample(1),
        "other lengths": lambda g: (*sample(3)(g)[:3], torch.zeros(2)),
    }


def pair_data() -> dict[str, Callable[[Generator], Sets]]:
    def sample(items: int, dtype: torch.dtype = torch.float64) -> Callable[[Generator], Sets]:
        return lambda g: tuple(torch.randint(-3, 0, (items,), generator=g).to(dtype) for _ in range(2))

    return {
        "ordinary": sample(20),
        "one pair": sample(1),
        "half": sample(20, torch.float16),
        "not a number": lambda g: (sample(5)(g)[0] / 0 * 0, sample(5)(g)[1]),
        "other lengths": lambda g: (sample(3)(g)[0], torch.zeros(2)),
        "integers": sample(3, torch.int64),
    }


def pair_preference_metric(*scores: Tensor, groups: Tensor | None = None, protocol: str | None = None) -> Any:
    metric = association.PairPreference(protocol)
    metric.update(*scores, groups=groups)
    return metric


def in_categories(*scores: Tensor) -> Any:
    metric = association.PairPreference(categories=["a", "b"])
    metric.update(*scores, categories=torch.arange(len(scores[0])) % 2)
    return metric.compute()["all"]


PAIRS = {
    "preference of pairs": Quantity(
        pair_data(),
        {
            "association.pair_preference": functional.pair_preference,
            "association.PairPreference": lambda *scores: pair_preference_metric(*scores).compute(),
            "association.PairPreference, with categories": in_categories,
        },
    ),
    "score of CrowS-Pairs": Quantity(
        pair_data(),
        {
            "association.pair_preference, protocol": lambda *scores: functional.pair_preference(
                *scores, protocol="crows-pairs"
            ),
            "association.PairPreference, protocol": lambda *scores: pair_preference_metric(
                *scores, protocol="crows-pairs"
            ).compute(),
        },
    ),
}
LOG_PROBABILITIES = {
    "LPBS": Quantity(
        lpbs_data(),
        {
            "association.lpbs": functional.lpbs,
            "association.LPBS": lambda *scores: updated(association.LPBS(), *scores).compute(),
        },
    )
}


def samples(generator: Generator) -> Sets:
    return tuple(torch.randn(7, 4, 5, generator=generator).double() for _ in range(4))


def combined_ceat(*word_sets: Tensor) -> Tensor:
    """Combine the effect sizes and their variances."""
    effects = association.CEAT()(*word_sets)
    x, y, a, b = (word_set / word_set.norm(dim=-1, keepdim=True) for word_set in word_sets)
    associations = torch.cat([(w @ a.mT).mean(-1) - (w @ b.mT).mean(-1) for w in (x, y)], -1)
    return functional.random_effects(effects, associations.var(-1)).value


def data_named(shapes: str, *names: str) -> dict[str, Callable[[Generator], Sets]]:
    return {name: make for name, make in data_of(shapes).items() if name in (names or ("ordinary", "float32"))}


MORE = {
    "combined effect": Quantity(
        {"ordinary": samples},
        {
            "association.CEAT": lambda *word_sets: updated(association.CEAT(), *word_sets).compute(),
            "association.random_effects": combined_ceat,
        },
    ),
    "p-value of GWEAT": Quantity(
        data_named("XA"),
        {
            "association.group_permutation_p_value": lambda x, a: functional.group_permutation_p_value(
                x, a, replicates=200
            ),
            "association.GWEAT, evaluate": tested("GWEAT", permutations=200),
        },
    ),
    "p-value of RIPA": Quantity(
        data_named("xya", "ordinary", "float32", "single"),
        {
            "association.sign_flip_p_value": lambda *word_sets: functional.sign_flip_p_value(
                functional.ripa(*word_sets, per_word=True)[1].mean(-2), replicates=200
            ),
            "association.RIPA, evaluate": tested("RIPA", permutations=200),
        },
    ),
    "p-value of RND": Quantity(
        data_named("xya", "ordinary", "float32", "single"),
        {
            "association.target_permutation_p_value": lambda *word_sets: functional.target_permutation_p_value(
                functional.rnd, *word_sets, replicates=200
            ),
            "association.RND, evaluate": tested("RND", permutations=200),
        },
    ),
    "WEAT's bootstrap": Quantity(
        data_named("xyab"),
        {
            "association.bootstrap_interval": lambda *word_sets: (
                functional.bootstrap_interval(functional.weat, *word_sets, replicates=100).low
            ),
            "association.WEAT, evaluate": lambda *word_sets: association.WEAT(replicates=100).evaluate(*word_sets).low,
        },
    ),
}


def labeled_rows(
    rows: int, change: Callable[[Tensor], Tensor] = lambda vectors: vectors
) -> Callable[[Generator], Sets]:
    def sample(generator: Generator) -> Sets:
        labels = torch.arange(rows) % 2
        return change(torch.randn(rows, 4, generator=generator).double() + labels.unsqueeze(-1)), labels

    return sample


def repeated_rows(vectors: Tensor, labels: Tensor) -> Tensor:
    """Compute the accuracies of words that have two equal rows each."""
    words = torch.arange(len(labels)).repeat(2)
    return stack_accuracies(functional.residual_bias(vectors.repeat(2, 1), labels.repeat(2), words))


def stack_accuracies(accuracies: dict[str, Any]) -> Tensor:
    return torch.stack([torch.as_tensor(accuracy).squeeze() for accuracy in accuracies.values()])


ACCURACIES = {
    "accuracies of recovered classes": Quantity(
        {
            "ordinary": labeled_rows(40),
            "float32": labeled_rows(40, torch.Tensor.float),
            "half": labeled_rows(40, torch.Tensor.half),
            "two words": labeled_rows(2),
            "all equal": labeled_rows(40, torch.zeros_like),
            "not a number": labeled_rows(40, lambda vectors: vectors / 0),
            "other lengths": labeled_rows(40, lambda vectors: vectors[1:]),
        },
        {
            "association.residual_bias": lambda *rows: stack_accuracies(functional.residual_bias(*rows)),
            "association.residual_bias, repeated rows": repeated_rows,
            "association.ResidualBias": lambda *rows: stack_accuracies(
                updated(association.ResidualBias(), *rows).compute()
            ),
        },
    )
}
QUANTITIES = SCORES | MORE | LOG_PROBABILITIES | ACCURACIES | PAIRS
