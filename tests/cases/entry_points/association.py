"""Numbers of sets of words: tensors, queries in words, tables of queries, and their p-values."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tensormetrics import association

from .quantity import Number, Way, fed

Sets = tuple[Tensor, ...]  # groups of sets are (G, W, D)


def sets(shapes: str, words: int = 4, dtype: torch.dtype = torch.float64) -> Callable[[Generator], Sets]:
    def made(generator: Generator) -> Sets:
        return tuple(
            (3 * torch.randn(*([3] if s.isupper() else []), words, 5, generator=generator)).to(dtype) for s in shapes
        )

    return made


def changed(shapes: str, change: Callable[[Tensor], Tensor], number: int = 0) -> Callable[[Generator], Sets]:
    """The first set, or that of another number, is changed."""

    def made(generator: Generator) -> Sets:
        found = list(sets(shapes)(generator))
        found[number] = change(found[number])
        return tuple(found)

    return made


def data_of(shapes: str) -> dict[str, Callable[[Generator], Sets]]:
    return {
        "ordinary": sets(shapes),
        "single": sets(shapes, 1),
        "float32": sets(shapes, dtype=torch.float32),
        "half": sets(shapes, dtype=torch.float16),
        "equal words": changed(shapes, torch.ones_like),
        "all equal": lambda generator: tuple(map(torch.ones_like, sets(shapes)(generator))),
        "a zero vector": changed(shapes, lambda x: x * (torch.arange(x.shape[-2]) > 0)[:, None], -1),
        "not a number": changed(shapes, lambda x: x / 0),
        "other dimensions": changed(shapes, lambda x: x[..., :-1], -1),
    }


def as_query(targets: int, given: Sets) -> tuple[association.Query, association.WordEmbeddingModel]:
    """The same sets as words of a model; `targets` of the tensors are target sets."""
    each = [(k < targets, part) for k, one in enumerate(given) for part in (one if one.ndim > 2 else [one])]
    words = [[f"w{k}-{i}" for i in range(len(part))] for k, (_, part) in enumerate(each)]
    model = association.WordEmbeddingModel.from_tensor(torch.cat([part for _, part in each]), sum(words, []))
    named = [(is_target, names) for (is_target, _), names in zip(each, words, strict=True)]
    return association.Query([n for t, n in named if t], [n for t, n in named if not t]), model


def padded(function: Callable[..., Any]) -> Way:
    """The function of wider sets, of which masks leave the same."""

    def value(*given: Tensor) -> Any:
        wide = (torch.nn.functional.pad(one, (0, 0, 1, 2), value=7.0) for one in given)
        masks = (torch.nn.functional.pad(torch.ones(one.shape[:-1], dtype=torch.bool), (1, 2)) for one in given)
        return function(*map(association.WordSet, wide, masks))

    return value


def of_metric(
    name: str,
    shapes: str,
    targets: int,
    functions: dict[str, Way],
    *,
    key: str = "result",
    rtol: float = 1e-9,
    query_of: Callable[..., Any] = as_query,
    **options: Any,
) -> Number:
    kind = getattr(association, name)

    def of_query(*given: Tensor) -> Any:
        query, model = query_of(targets, given)
        return kind(**options).run_query(query, model)[key]

    def of_table(*given: Tensor) -> Any:
        query, model = query_of(targets, given)
        return association.run_queries(kind, [query], [model], metric_params=options, value=key).iloc[0, 0]

    def of_scores(*given: Tensor) -> Any:
        query, model = query_of(targets, given)
        found = association.run_queries(kind, [query], [model], metric_params=options, value=key, as_dataframe=False)
        return found.values[0, 0]

    def result_of(values: dict[str, Tensor]) -> Tensor:
        return values[key] if key in values else next(iter(values.values()))

    first = next(iter(functions))
    ways = {
        **functions,
        f"{first}, masks": padded(functions[first]),
        f"{first}, batch": lambda *given: functions[first](*(one[None] for one in given)),
        f"association.{name}, measure": lambda *given: result_of(kind(**options).measure(*given)),
        f"association.{name}, evaluate": lambda *given: result_of(kind(**options).evaluate(*given)),
        f"association.{name}, run_query": of_query,
        "association.run_queries": of_table,
        "association.run_queries, QueryScores": of_scores,
    }
    if key == "result" or options.get("return_effect_size"):
        ways[f"association.{name}"] = lambda *given: fed(kind(**options), *(one[None] for one in given)).compute()
        ways[f"association.{name}, forward"] = lambda *given: kind(**options)(*(one[None] for one in given))
    no_words = {
        "other dimensions": "a model has one dimension",
        "not a number": "a model has finite vectors",
    }
    in_words = (f"association.{name}, run_query", "association.run_queries", "association.run_queries, QueryScores")
    without = dict.fromkeys(in_words, no_words)
    if "association.gweat, two groups" in ways:
        without["association.gweat, two groups"] = {"other dimensions": "stacks the sets"}
    return Number(data_of(shapes), ways, without=without, rtol=rtol)


def half_weat(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """GWEAT of two groups is a known share of WEAT."""
    return 2 * x.shape[-2] * association.gweat(torch.stack([x, y], -3), torch.stack([a, b], -3))


SCORES = {
    "WEAT": of_metric(
        "WEAT",
        "xyab",
        2,
        {"association.weat": association.weat, "association.gweat, two groups": half_weat},
    ),
    "WEAT's effect size": of_metric(
        "WEAT",
        "xyab",
        2,
        {"association.weat_effect_size": association.weat_effect_size},
        return_effect_size=True,
    ),
    "effect of ML-EAT": of_metric(
        "MLEAT",
        "xyab",
        2,
        {
            "association.ml_eat": lambda *given: association.ml_eat(*given).effect,
            "association.weat_effect_size": lambda *given: association.weat_effect_size(*given, correction=1),
        },
    ),
    "single-category WEAT": of_metric(
        "SCWEAT",
        "wab",
        1,
        {
            "association.mean_sc_weat": association.mean_sc_weat,
            "association.sc_weat": lambda *given: association.sc_weat(*given).mean(-1),
        },
    ),
    "RND": of_metric("RND", "xya", 2, {"association.rnd": association.rnd}),
    "ECT": of_metric("ECT", "xya", 2, {"association.ect": association.ect}),
    "RIPA": of_metric(
        "RIPA",
        "xya",
        2,
        {
            "association.ripa": association.ripa,
            "association.ripa, per word": lambda *given: association.ripa(*given, per_word=True)[0],
        },
    ),
    "MAC": of_metric("MAC", "tA", 1, {"association.mac": association.mac}),
    "SAME": of_metric("SAME", "tG", 1, {"association.same": association.same}),
    "GWEAT": of_metric("GWEAT", "XA", 1, {"association.gweat": association.gweat}),
    "RNSB": of_metric("RNSB", "tab", 1, {"association.rnsb": association.rnsb}, rtol=1e-6),
}


def p_value_of_weat(*given: Tensor) -> Tensor:
    x, y, a, b = (one.double() for one in given)
    cosines = torch.nn.functional.cosine_similarity
    u, v = (cosines(w[:, None], a[None], -1).mean(1) - cosines(w[:, None], b[None], -1).mean(1) for w in (x, y))
    return association.permutation_p_value(u, v)


def query_p_value(*given: Tensor) -> Any:
    query, model = as_query(2, given)
    return association.WEAT().run_query(query, model, calculate_p_value=True)["p_value"]


def table_p_value(*given: Tensor) -> Any:
    query, model = as_query(2, given)
    options = {"calculate_p_value": True}
    return association.run_queries(association.WEAT, [query], [model], metric_params=options, value="p_value").iloc[
        0, 0
    ]


P_VALUES = {
    "p-value of WEAT": Number(
        {
            name: make
            for name, make in data_of("xyab").items()
            if name in ("ordinary", "single", "float32", "all equal")
        },
        {
            "association.permutation_p_value": p_value_of_weat,
            "association.permutation_p_value, exact": lambda *given: association.WEAT(
                calculate_p_value=True, p_value_method="exact"
            ).evaluate(*given)["p_value"],
            "association.WEAT, p_values": lambda *given: association.WEAT().p_values(*given)["p_value"],
            "association.WEAT, evaluate": lambda *given: association.WEAT(calculate_p_value=True).evaluate(*given)[
                "p_value"
            ],
            "association.WEAT, run_query": query_p_value,
            "association.run_queries": table_p_value,
            "association.target_permutation_p_value": lambda x, y, a, b: association.target_permutation_p_value(
                lambda x, y, a: association.weat(x, y, a, b), x, y, a
            ),
        },
    )
}


def lpbs_data() -> dict[str, Callable[[Generator], Sets]]:
    def made(items: int) -> Callable[[Generator], Sets]:
        return lambda g: tuple(torch.rand(items, generator=g).add(0.01).log().double() for _ in range(4))

    return {"ordinary": made(6), "one sentence": made(1), "other lengths": lambda g: (*made(3)(g)[:3], torch.zeros(2))}


def pair_data() -> dict[str, Callable[[Generator], Sets]]:
    def made(items: int, dtype: torch.dtype = torch.float64) -> Callable[[Generator], Sets]:
        return lambda g: tuple(torch.randint(-3, 0, (items,), generator=g).to(dtype) for _ in range(2))

    return {
        "ordinary": made(20),
        "one pair": made(1),
        "half": made(20, torch.float16),
        "not a number": lambda g: (made(5)(g)[0] / 0 * 0, made(5)(g)[1]),
        "other lengths": lambda g: (made(3)(g)[0], torch.zeros(2)),
        "integers": made(3, torch.int64),
    }


def of_pairs(*given: Tensor, groups: Tensor | None = None, protocol: str | None = None) -> Any:
    metric = association.PairPreference(protocol)
    metric.update(*given, groups=groups)
    return metric


def in_categories(*given: Tensor) -> Any:
    metric = association.PairPreference(categories=["a", "b"])
    metric.update(*given, categories=torch.arange(len(given[0])) % 2)
    return metric.compute()["all"]


PAIRS = {
    "preference of pairs": Number(
        pair_data(),
        {
            "association.pair_preference": association.pair_preference,
            "association.PairPreference": lambda *given: of_pairs(*given).compute(),
            "association.PairPreference, forward": lambda *given: association.PairPreference()(*given),
            "association.PairPreference, with categories": in_categories,
        },
    ),
    "score of CrowS-Pairs": Number(
        pair_data(),
        {
            "association.pair_preference, protocol": lambda *given: association.pair_preference(
                *given, protocol="crows-pairs"
            ),
            "association.PairPreference, protocol": lambda *given: of_pairs(*given, protocol="crows-pairs").compute(),
        },
    ),
}
LOG_PROBABILITIES = {
    "LPBS": Number(
        lpbs_data(),
        {
            "association.lpbs": association.lpbs,
            "association.LPBS": lambda *given: fed(association.LPBS(), *given).compute(),
            "association.LPBS, forward": lambda *given: association.LPBS()(*given).mean(),
        },
    )
}


def samples(generator: Generator) -> Sets:
    return tuple(torch.randn(7, 4, 5, generator=generator).double() for _ in range(4))


def by_hand(*given: Tensor) -> Tensor:
    """Effects and their variances, combined."""
    effects = association.CEAT()(*given)
    x, y, a, b = (one / one.norm(dim=-1, keepdim=True) for one in given)
    gaps = torch.cat([(w @ a.mT).mean(-1) - (w @ b.mT).mean(-1) for w in (x, y)], -1)
    return association.random_effects(effects, gaps.var(-1)).value


def of_two_parts(*given: Tensor) -> Tensor:
    metric = association.CEAT()
    for part in (slice(3), slice(3, None)):
        metric.update(*(one[part] for one in given))
    return metric.compute()


def tested(kind: type, *given: Tensor) -> Tensor:
    return kind(calculate_p_value=True, p_value_iterations=200).evaluate(*given)["p_value"]


def only(shapes: str, *names: str) -> dict[str, Callable[[Generator], Sets]]:
    return {name: make for name, make in data_of(shapes).items() if name in (names or ("ordinary", "float32"))}


MORE = {
    "combined effect": Number(
        {"ordinary": samples},
        {
            "association.CEAT": lambda *given: fed(association.CEAT(), *given).compute(),
            "association.CEAT, in two updates": of_two_parts,
            "association.random_effects": by_hand,
        },
    ),
    "direct bias": of_metric("DirectBias", "tG", 1, {"association.direct_bias": association.direct_bias}),
    "p-value of GWEAT": Number(
        only("XA"),
        {
            "association.group_permutation_p_value": lambda x, a: association.group_permutation_p_value(
                x, a, replicates=200
            ),
            "association.GWEAT, evaluate": lambda *given: tested(association.GWEAT, *given),
        },
    ),
    "p-value of RIPA": Number(
        only("xya", "ordinary", "float32", "single"),
        {
            "association.sign_flip_p_value": lambda *given: association.sign_flip_p_value(
                association.ripa(*given, per_word=True)[1].mean(-2), replicates=200
            ),
            "association.RIPA, evaluate": lambda *given: tested(association.RIPA, *given),
        },
    ),
    "p-value of RND": Number(
        only("xya", "ordinary", "float32", "single"),
        {
            "association.target_permutation_p_value": lambda *given: association.target_permutation_p_value(
                association.rnd, *given, replicates=200
            ),
            "association.RND, evaluate": lambda *given: tested(association.RND, *given),
        },
    ),
    "WEAT's bootstrap": Number(
        only("xyab"),
        {
            "association.bootstrap_interval": lambda *given: (
                association.bootstrap_interval(association.weat, *given, replicates=100).low
            ),
            "association.WEAT, evaluate": lambda *given: association.WEAT(replicates=100).evaluate(*given)["low"],
        },
    ),
}


def labelled_rows(
    rows: int, change: Callable[[Tensor], Tensor] = lambda vectors: vectors
) -> Callable[[Generator], Sets]:
    def made(generator: Generator) -> Sets:
        labels = torch.arange(rows) % 2
        return change(torch.randn(rows, 4, generator=generator).double() + labels.unsqueeze(-1)), labels

    return made


def repeated_rows(vectors: Tensor, labels: Tensor) -> Tensor:
    """Words of two equal rows, which count as one."""
    words = torch.arange(len(labels)).repeat(2)
    return stacked(association.residual_bias(vectors.repeat(2, 1), labels.repeat(2), words))


def stacked(accuracies: dict[str, Any]) -> Tensor:
    return torch.stack([torch.as_tensor(accuracy).squeeze() for accuracy in accuracies.values()])


ACCURACIES = {
    "accuracies of recovered classes": Number(
        {
            "ordinary": labelled_rows(40),
            "float32": labelled_rows(40, torch.Tensor.float),
            "half": labelled_rows(40, torch.Tensor.half),
            "two words": labelled_rows(2),
            "all equal": labelled_rows(40, torch.zeros_like),
            "not a number": labelled_rows(40, lambda vectors: vectors / 0),
            "other lengths": labelled_rows(40, lambda vectors: vectors[1:]),
        },
        {
            "association.residual_bias": lambda *rows: stacked(association.residual_bias(*rows)),
            "association.residual_bias, batch": lambda x, y: stacked(association.residual_bias(x[None], y)),
            "association.residual_bias, repeated rows": repeated_rows,
            "association.ResidualBias": lambda *rows: stacked(fed(association.ResidualBias(), *rows).compute()),
            "association.ResidualBias, forward": lambda *rows: stacked(association.ResidualBias()(*rows)),
        },
    )
}
NUMBERS = SCORES | MORE | P_VALUES | LOG_PROBABILITIES | ACCURACIES | PAIRS
