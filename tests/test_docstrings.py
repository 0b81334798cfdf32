"""Every public name says what it is and of what shape its tensors are, stands on the page of names, and has a place in
the reference that is built from all this."""

import dataclasses
import doctest
import enum
import inspect
import re
import types
from importlib import import_module
from pathlib import Path

import pytest
import torch

import tensormetrics
from tensormetrics.posterior import temporary_registrations

NAMES = [
    (domain, name) for domain in tensormetrics._DOMAINS for name in import_module(f"tensormetrics.{domain}").__all__
]
SHAPE = re.compile(  # (..., N, D), (k,), (), (rows, C)
    r"\(\.\.\.\)|\(\)|\((\.\.\.|[A-Z*]\w*|\d+|[a-z])( ?[-+*/] ?\w+)?,[^()]*\)|\([a-z]+, [A-Z\d][^()]*\)"
)


SHOWN = {name for _, name in NAMES} | {"update", "forward", "__call__"}


def value_of(domain: str, name: str):
    return getattr(import_module(f"tensormetrics.{domain}"), name)


@pytest.mark.parametrize(("domain", "name"), NAMES, ids=str)
def test_has_a_docstring_of_its_own(domain, name):
    value = value_of(domain, name)
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    assert text and not text.startswith(f"{name}(")  # which is what a dataclass without one has


def functions_of(value) -> list[list]:
    """A public function; of a class, each public method that takes tensors, in all classes that define it."""
    if inspect.isfunction(value):
        return [[value]] if "Tensor" in str(inspect.signature(value)) else []
    if not inspect.isclass(value):  # a registry
        return []
    classes = [base for base in value.__mro__ if re.match(r"tensormetrics\.[a-z]", base.__module__)]
    names = {name for base in classes for name in vars(base) if not name.startswith("_")} | {"__call__"}
    methods = [[vars(base)[name] for base in classes if inspect.isfunction(vars(base).get(name))] for name in names]
    return [versions for versions in methods if versions and takes_tensors(versions[0])]


def takes_tensors(method) -> bool:
    annotations = [str(parameter.annotation) for parameter in inspect.signature(method).parameters.values()]
    return any("Tensor" in text and "Callable" not in text for text in annotations)


def says_shapes(function) -> bool:
    """In the docstring, which `help` shows; of steps that only the library's own classes take, in comments."""
    comments = re.findall(r"#(.*)", inspect.getsource(function)) if function.__name__ not in SHOWN else []
    words = re.sub(r"^ *(>>>|\.\.\.) .*", "", function.__doc__ or "", flags=re.MULTILINE)
    return any(SHAPE.search(text) for text in [*comments, words])


@pytest.mark.parametrize(("domain", "name"), NAMES, ids=str)
def test_says_of_what_shape_its_tensors_are(domain, name):
    value = value_of(domain, name)
    if inspect.isclass(value) and SHAPE.search(value.__doc__):
        return
    assert [versions for versions in functions_of(value) if not any(map(says_shapes, versions))] == []


def test_shapes_are_told_from_other_brackets():
    assert all(SHAPE.search(text) for text in ("x: (..., N, D)", "(N,) int64", "->  (...)", "(Q + 1, k)"))
    assert not any(SHAPE.search(text) for text in ("no shape", "a function (of two arguments)", "f(x) + 1"))


def test_names_in_docstrings_are_exported():
    known = {name for domain in tensormetrics._DOMAINS for name in dir(import_module(f"tensormetrics.{domain}"))}
    unknown = set()
    for domain, name in NAMES:
        value = value_of(domain, name)
        classes = [base for base in getattr(value, "__mro__", ()) if base.__module__.startswith("tensormetrics")]
        methods = [method for base in classes for key, method in vars(base).items() if not key.startswith("_")]
        for text in (documented.__doc__ or "" for documented in [value, *methods]):
            unknown |= {(name, word) for word in re.findall(r"`([A-Z]\w+)`", text) if word not in known}
    assert unknown == set()


OF_MODELS = "log_probabilities", "pseudo_log_likelihood", "score_pairs", "sentence_log_likelihood"
OTHERS = {"FaissKMeans": "faiss", "FaissKNN": "faiss", **dict.fromkeys(OF_MODELS, "transformers")}
PLOTS = "plot_", "create_ranking", "calculate_ranking", "run_queries"
READABLE = 500  # characters of a docstring that may leave the example to the function it names


def needs_example(domain: str, name: str) -> bool:
    """Functions, doors, and Modules that do not point at a function; a result, a structure or an error says enough."""
    value = value_of(domain, name)
    if not inspect.isclass(value):
        return callable(value) and not isinstance(value, types.GenericAlias)
    if dataclasses.is_dataclass(value) or issubclass(value, Exception | tuple | enum.Enum):
        return False
    functions = {other for where, other in NAMES if where == domain and inspect.isfunction(value_of(where, other))}
    points = functions & set(re.findall(r"`(\w+)", value.__doc__ or ""))
    return not (points and len(value.__doc__) < READABLE) and not getattr(value, "_is_protocol", False)


WITH_EXAMPLE = [(domain, name) for domain, name in NAMES if ">>>" in (value_of(domain, name).__doc__ or "")]


def test_what_needs_an_example_has_one():
    assert [row for row in NAMES if needs_example(*row) and row not in WITH_EXAMPLE] == []


@pytest.mark.parametrize(("domain", "name"), WITH_EXAMPLE, ids=str)
def test_examples_print_what_stands_below_them(domain, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip(OTHERS.get(name, "torch"))
    if name.startswith(PLOTS):
        pytest.importorskip("matplotlib"), pytest.importorskip("pandas")
    known = {other: value_of(where, other) for where, other in NAMES if where == domain}
    names = {"torch": torch, "__name__": "__main__", **known}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(value_of(domain, name)), names, name, None, None)
    told: list[str] = []
    with temporary_registrations():
        doctest.DocTestRunner(verbose=False).run(example, out=told.append)
    assert example.examples and not told, "".join(told)


@pytest.mark.lists
def test_stands_on_the_page_of_names():
    page = (Path(__file__).parents[1] / "tensormetrics" / "README.md").read_text()
    table = page.partition("\n## ")[0]
    listed = {}
    for line in table.splitlines():
        if heading := re.match(r"\| \*\*(\w+)\*\* \|", line):
            domain = heading[1]
        elif line.startswith("|"):
            for name in re.findall(r"`(\w+)`", line):
                listed[domain, name] = value_of(domain, name)  # which fails where there is no such name
    assert set(NAMES) - set(listed) == set()


def test_the_reference_shows_every_name(tmp_path):
    pdoc = pytest.importorskip("pdoc")
    assert all(hasattr(tensormetrics, name) for name in tensormetrics.__all__)  # they are lazy
    pdoc.pdoc("tensormetrics", r"!tensormetrics\.\w+\.", output_directory=tmp_path)
    pages = {domain: (tmp_path / "tensormetrics" / f"{domain}.html").read_text() for domain in tensormetrics._DOMAINS}
    assert [(domain, name) for domain, name in NAMES if f'id="{name}"' not in pages[domain]] == []
