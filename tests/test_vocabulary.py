"""One word for one idea: no public name takes, has or prints the words that another one replaced."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click
import pytest
from cases import DOMAINS

import tensormetrics
from tensormetrics.__main__ import main

ABOLISHED = {
    **dict.fromkeys(("num_samples", "n_samples", "n_resamples", "num_bootstraps", "n_bootstraps"), "replicates"),
    **dict.fromkeys(("iterations", "n_iterations", "num_replicates", "n_replicates"), "replicates"),
    **dict.fromkeys(("ci_probability", "confidence_level", "ci", "ci_level", "level_of_confidence"), "confidence"),
    **dict.fromkeys(("min_sig_diff", "margin", "equivalence"), "rope"),
    **dict.fromkeys(("p_left", "p_right", "p_greater", "p_less", "p_direction"), "p_better"),
    **dict.fromkeys(("next_left", "next_right", "next_rope"), "details['p_next_better']"),
    **dict.fromkeys(("random_state", "random_seed"), "seed"),
    **dict.fromkeys(("right-sided", "left-sided"), "alternative='greater' or 'less'"),
}
TEXTS = tuple(word for word in ABOLISHED if "-" in word)  # values of options, not names
DOORS = {  # where the words of another package are its users' own
    "posterior.Study": {"ci_probability", "min_sig_diff", "num_samples"},
    "posterior.Experiment": {"num_samples"},
    "posterior.ExperimentGroup": {"num_samples"},
    "posterior.ExperimentResult": {"num_samples"},
    "posterior.ExperimentAggregationResult": {"num_samples"},
    "association.INLP": {"n_iterations"},  # classifiers, none of them a draw
    "association.RNSB": {"n_iterations", "random_state"},
}
SEEDS = {  # defaults other than 0, and None for another default than that of the seed
    "posterior.Study": None,
    "retrieval.TorchKMeans": 1234,  # as faiss
}
SIDES = "two-sided", "greater", "less"
OPTIONS = {"--num-samples", "--samples", "--iterations", "--ci", "--ci-probability", "--min-sig-diff"}


def public_objects() -> Iterator[tuple[str, Any]]:
    for domain in DOMAINS:
        module = import_module(f"tensormetrics.{domain}")
        yield from ((f"{domain}.{name}", getattr(module, name)) for name in module.__all__)


def own_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__.startswith("tensormetrics")]


def signatures(value: Any) -> Iterator[inspect.Signature]:
    """Give those of a function, or of the constructor and the public methods of a class."""
    calls = [value]
    if inspect.isclass(value):
        calls = [base.__init__ for base in own_bases(value) if "__init__" in vars(base)]
        calls += [call for base in own_bases(value) for name, call in vars(base).items() if not name.startswith("_")]
    for call in calls:
        if inspect.isfunction(call := getattr(call, "__func__", call)):
            yield inspect.signature(call)


def words_of(value: Any) -> set[str]:
    """Return the names of arguments, fields and public members, and the texts of signatures."""
    words = {name for signature in signatures(value) for name in signature.parameters}
    if inspect.isclass(value):
        words |= {name for base in own_bases(value) for name in (*vars(base), *vars(base).get("__annotations__", ()))}
    words |= {text for signature in signatures(value) for text in TEXTS if text in str(signature)}
    return words


def test_abolished_words_are_used_at_the_doors_of_their_packages_only():
    found = {name: words for name, value in public_objects() if (words := words_of(value) & ABOLISHED.keys())}
    new = {name: {word: ABOLISHED[word] for word in words - DOORS.get(name, set())} for name, words in found.items()}
    assert {name: words for name, words in new.items() if words} == {}  # word -> what to write instead
    assert DOORS.keys() <= found.keys() and all(DOORS[name] <= found[name] for name in DOORS)


def test_options_of_one_name_have_one_default():
    defaults = defaultdict(dict)
    for name, value in public_objects():
        for signature in signatures(value):
            for parameter in signature.parameters.values():
                if parameter.default is not parameter.empty:
                    defaults[parameter.name][name] = parameter.default
    # None: the default of the metric, or no region of equivalence.
    assert set(defaults["confidence"].values()) <= {0.95, None} and set(defaults["rope"].values()) == {None}
    assert set(defaults["alternative"].values()) <= {*SIDES}
    seeds = {name: seed for name, seed in defaults["seed"].items() if seed not in (0, None) or name in SEEDS}
    assert seeds == SEEDS


def test_options_of_the_command_line_use_the_same_words():
    options = set()

    def collect(command: click.Command) -> None:
        options.update(name for parameter in command.params for name in parameter.opts)
        for name in getattr(command, "list_commands", lambda context: [])(None):
            collect(command.get_command(None, name))

    collect(main)
    assert options & OPTIONS == set() and {"--replicates", "--confidence", "--rope", "--seed"} <= options


@pytest.mark.parametrize("name", ["replicates", "confidence", "rope", "alternative", "seed"])
def test_surviving_words_are_in_use(name):
    assert any(name in words_of(value) for _, value in public_objects())


def test_words_of_a_signature_are_found():
    def function(num_samples: int, alternative: str = "right-sided") -> None: ...

    class Kind:
        min_sig_diff: float

        def method(self, ci_probability: float) -> None: ...

    Kind.__module__ = tensormetrics.__name__
    assert words_of(function) & ABOLISHED.keys() == {"num_samples", "right-sided"}
    assert words_of(Kind) & ABOLISHED.keys() == {"min_sig_diff", "ci_probability"}
    assert all(re.fullmatch(r"[a-z_-]+", word) for word in ABOLISHED)
