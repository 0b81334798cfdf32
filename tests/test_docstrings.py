"""Every public name has a docstring with the shapes of its tensors and is listed on the page of names and in the
reference."""

import ast
import dataclasses
import doctest
import enum
import inspect
import re
import subprocess
import sys
import types
from importlib import import_module
from pathlib import Path

import pytest
import torch
from cases import DOMAINS, FRONTS, PLACES, PUBLIC, public
from record import PAGE, list_of_names
from syntax import trees

from tensormetrics.core.arguments.checks import constructors
from tensormetrics.core.arguments.docstrings import arguments, sections
from tensormetrics.posterior.extend import temporary_registrations

NAMES = [(domain, name) for domain in DOMAINS for name in public(domain)]
SHAPE = re.compile(  # (..., N, D), (k,), (), (rows, C)
    r"\(\.\.\.\)|\(\)|\((\.\.\.|[A-Z*]\w*|\d+|[a-z])( ?[-+*/] ?\w+)?,[^()]*\)|\([a-z]+, [A-Z\d][^()]*\)"
)
SHOWN = {name for _, name in NAMES} | {"update", "forward", "__call__"}


def value_of(domain: str, name: str):
    return PUBLIC[f"{domain}.{name}"]


TERSE = "suites.structures", "embeddings.datasets"  # dataclasses of named fields, loaders of published words


def missing_sections(value, is_front: bool) -> list[str]:
    """Return what `help` of a name lacks: an example, and for a front page arguments, results and errors."""
    is_class, is_named = inspect.isclass(value), isinstance(value, types.GenericAlias) or not callable(value)
    is_plain = is_class and (issubclass(value, Exception | enum.Enum) or getattr(value, "_is_protocol", False))
    if is_plain or is_named or value.__module__.endswith(TERSE):
        return []
    found = sections(value.__doc__)
    named = [p for p in inspect.signature(value).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    named += [p for each in constructors(value) for p in each if p.kind is p.KEYWORD_ONLY] if is_class else []
    lacks = sorted({p.name for p in named} - {name.strip("*") for name in arguments(found)}) if is_front else []
    if is_class and (dataclasses.is_dataclass(value) or issubclass(value, tuple)):
        return lacks  # results, which the functions that make them show
    raises = is_class or re.search(r"\b(raise|check\w*)\b", inspect.getsource(inspect.unwrap(value)))
    wanted = {"Raises": raises and is_front, "Returns": is_front and not is_class}
    lacks += [name for name, is_wanted in wanted.items() if is_wanted and name not in found]
    return lacks + ["Example"] * (">>>" not in value.__doc__)


def test_help_shows_arguments_results_errors_and_an_example():
    names = [(place, name, getattr(place, name)) for place in PLACES for name in place.__all__]
    assert [name for _, name, value in names if not value.__doc__ or value.__doc__.startswith(f"{name}(")] == []
    missing = {f"{place.__name__}.{name}": missing_sections(value, place in FRONTS) for place, name, value in names}
    assert {name: lacks for name, lacks in missing.items() if lacks} == {}


def method_versions(value) -> list[list]:
    """Return a function, or the public methods with tensor arguments of a class, as lists of overridden versions."""
    if inspect.isfunction(value):
        return [[value]] if "Tensor" in str(inspect.signature(value)) else []
    if not inspect.isclass(value):  # a registry
        return []
    classes = [base for base in value.__mro__ if re.match(r"tensormetrics\.(?!core\.)[a-z]", base.__module__)]
    names = {name for base in classes for name in vars(base) if not name.startswith("_")} | {"__call__"}
    methods = [[vars(base)[name] for base in classes if inspect.isfunction(vars(base).get(name))] for name in names]
    return [versions for versions in methods if versions and takes_tensors(versions[0])]


def takes_tensors(method) -> bool:
    annotations = [str(parameter.annotation) for parameter in inspect.signature(method).parameters.values()]
    return any("Tensor" in text and "Callable" not in text for text in annotations)


def documents_shapes(function) -> bool:
    """Return whether shapes are in the docstring or, for methods that only the library calls, in comments."""
    comments = re.findall(r"#(.*)", inspect.getsource(function)) if function.__name__ not in SHOWN else []
    docstring = re.sub(r"^ *(>>>|\.\.\.) .*", "", function.__doc__ or "", flags=re.MULTILINE)
    return any(SHAPE.search(text) for text in [*comments, docstring])


def lacks_shapes(value) -> bool:
    if inspect.isclass(value) and SHAPE.search(value.__doc__):
        return False
    return not all(any(map(documents_shapes, versions)) for versions in method_versions(value))


def test_docstrings_document_shapes_of_tensors():
    assert [row for row in NAMES if lacks_shapes(value_of(*row))] == []


MODEL_FUNCTIONS = "log_probabilities", "pseudo_log_likelihood", "score_pairs", "sentence_log_likelihood"
REQUIRED_PACKAGES = {"FaissKMeans": "faiss", "FaissKNN": "faiss", **dict.fromkeys(MODEL_FUNCTIONS, "transformers")}
PLOT_PREFIXES = "plot_", "create_ranking", "calculate_ranking", "run_queries"
WITH_EXAMPLE = [(domain, name) for domain, name in NAMES if ">>>" in (value_of(domain, name).__doc__ or "")]


def run_examples(name: str, docstring: str, names: dict) -> None:
    example = doctest.DocTestParser().get_doctest(docstring, {"torch": torch, **names}, name, None, None)
    failures: list[str] = []
    with temporary_registrations():
        doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert example.examples and not failures, "".join(failures)


def names_of(domain: str) -> dict:
    return {"__name__": "__main__", **public(domain)}


@pytest.mark.parametrize(("domain", "name"), WITH_EXAMPLE, ids=str)
def test_docstring_examples_print_expected_output(domain, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip(REQUIRED_PACKAGES.get(name, "torch"))
    if name.startswith(PLOT_PREFIXES):
        pytest.importorskip("matplotlib"), pytest.importorskip("pandas")
    run_examples(name, inspect.getdoc(value_of(domain, name)), names_of(domain))


def other_examples() -> list:
    """Return (file, qualified name, docstring) of methods and of functions that are not public with an example."""
    public, rows = {name for _, name in NAMES}, []

    def collect(file: Path, node: ast.AST, parents: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                path = (*parents, child.name)
                docstring = ast.get_docstring(child) or ""
                if ">>>" in docstring and (parents or child.name not in public):
                    rows.append(pytest.param(file, docstring, id=".".join(path)))
                collect(file, child, path)

    for file, tree in trees().items():
        collect(file, tree, ())
    return rows


@pytest.mark.parametrize(("file", "docstring"), other_examples())
def test_examples_of_methods_and_other_functions_print_expected_output(file, docstring, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = import_module(".".join(["tensormetrics", *file.with_suffix("").parts]))
    domain = file.parts[0] if file.parts[0] in DOMAINS else "uncertainty" if "results" in file.parts else None
    run_examples(request.node.name, docstring, vars(module) | (names_of(domain) if domain else {}))


@pytest.mark.lists
def test_public_names_are_listed_on_page():
    assert list_of_names() in PAGE.read_text(), "run python tests/record.py"


@pytest.mark.full
def test_reference_shows_every_name_and_its_links_lead_somewhere(tmp_path):
    pytest.importorskip("pdoc")
    template = Path(__file__).parents[1] / ".github" / "reference"
    inner = [place.__name__ for place in PLACES if place.__name__.count(".") > 1]
    options = ["tensormetrics", r"!tensormetrics\.\w+\.", *inner, "-t", template, "-o", tmp_path]
    subprocess.run([sys.executable, "-m", "pdoc", *options], check=True, capture_output=True, cwd=template.parents[1])
    pages = {page: page.read_text() for page in tmp_path.rglob("*.html")}
    names = {page: {*re.findall(r'id="([^"]+)"', text)} for page, text in pages.items()}
    pages_of = {place: tmp_path / f"{place.__name__.replace('.', '/')}.html" for place in PLACES}
    missing = [(page, name) for place, page in pages_of.items() for name in place.__all__ if name not in names[page]]
    broken = []
    for page, text in pages.items():
        for file, _, name in (link.partition("#") for link in re.findall(r'href="([^":$]*)"', text)):
            target = (page.parent / file).resolve() if file else page
            if target not in pages or name and name not in names[target]:
                broken.append((page.stem, file, name))
    assert missing == [] and broken == []
