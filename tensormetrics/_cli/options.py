"""Options of commands, read from the signatures and docstrings of their functions.

A command is a function in a file of `commands`. These files import torch, so they are only parsed for the options and
imported when the command runs: help is fast.
"""

import ast
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec, resolve_name
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click

from . import names, option_types
from .interruption import leaving_at_once
from .naming import Warned, naming
from .option_types import BadInput, Path


class Namespace(dict[str, Any]):
    """Names to evaluate annotations and defaults; those of the library are read when they are needed."""

    def __missing__(self, name: str) -> Any:
        return vars(names)[name] if name in vars(names) else names.LISTS[name]()


NAMESPACE = Namespace(vars(option_types))
EPILOGS = {
    "retrieval": "Metrics: {RETRIEVAL}.",
    "posterior": "Metrics: {POSTERIOR}. Averages over classes, after @: {POSTERIOR_AVERAGES}.",
}
ENTRY = re.compile(r"(\w+)(?: \((\S+)\))?: (.*?)(?: \[default: (.*)\])?")


def command_of(name: str, file: str) -> click.Command:
    """Return the command `name`, which is a function of `commands/FILE.py`.

    Its parameters are arguments; keyword-only parameters are options. `**options` denotes the keyword-only parameters
    of the function that receives them. Annotations define the accepted values, the Args of the docstring the rest:
    `parameter (METAVAR): Help. [default: meaning of None]`.
    """
    module, function = _definition(f"{__package__}.commands.{file}", name.replace("-", "_"))
    parameters: list[click.Parameter] = [*_arguments(function), *_options(module, function)]
    help_text = (ast.get_docstring(function) or "").partition("\nArgs:\n")[0]
    callback, epilog = _callback(module, function.name), EPILOGS.get(name, "").format_map(NAMESPACE)
    return click.Command(name, callback=callback, params=parameters, help=help_text, epilog=epilog)


def _callback(module: str, function: str) -> Callable[..., int]:
    def run(**options: Any) -> int:
        if without_partner := [name for name in ("title", "figsize") if options.get(name) and not options["plot"]]:
            raise BadInput(f"--{without_partner[0]}: is for --plot; write both")
        if not options.get("compare", True) and options.get("rope") is not None:
            raise BadInput("--rope: is for --compare; write both")
        with leaving_at_once():
            work = getattr(import_module(module), function)
        with Warned(), naming("", **_names(click.get_current_context())):
            return work(**options)

    return run


def _names(context: click.Context) -> dict[str, str]:
    """Return the file or the option that messages call each parameter by."""
    names: dict[str, str] = {}
    for parameter in context.command.params:
        option, value = parameter.opts[-1], context.params[parameter.name or ""]
        is_file = isinstance(value, str) and (isinstance(parameter, click.Argument) or parameter.metavar == "FILE")
        names |= dict.fromkeys((str(parameter.name), option.removeprefix("--")), value if is_file else option)
    return names


def _arguments(function: ast.FunctionDef) -> Iterator[click.Argument]:
    arguments, defaults = function.args.args, function.args.defaults
    for index, argument in enumerate(arguments):
        attributes = _attributes(_value(argument.annotation))
        if attributes.pop("multiple", False):
            attributes["nargs"] = -1
        yield click.Argument([argument.arg], required=index < len(arguments) - len(defaults), **attributes)


def _options(module: str, function: ast.FunctionDef, passed: tuple[str | None, ...] = ()) -> Iterator[click.Option]:
    """Yield the keyword-only parameters except those that the caller has `passed` itself."""
    described = _help_of(function)
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if argument.arg in passed:
            continue
        attributes = {"show_default": True} | _attributes(_value(argument.annotation))
        attributes |= described.get(argument.arg, {})
        if default is None:
            attributes["required"] = True
        else:
            attributes["default"] = _value(default)
        name = attributes.pop("name", f"--{argument.arg.replace('_', '-')}")
        if attributes.get("is_flag") and attributes["default"]:
            name += f"/--no-{name[2:]}"
        yield click.Option([name, argument.arg], **attributes)
    others = function.args.kwarg.arg if function.args.kwarg else None
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
            if any(isinstance(value, ast.Name) and value.id == others for value in unpacked):
                yield from _options(*_definition(module, call.func.id), tuple(keyword.arg for keyword in call.keywords))


def _definition(module: str, name: str) -> tuple[str, ast.FunctionDef]:
    """Return a function and the module that defines it; `module` may import it from there."""
    statements = ast.parse(Path(getattr(find_spec(module), "origin", "")).read_text("utf-8")).body
    for node in statements:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return module, node
    for node in statements:
        if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names):
            relative = "." * node.level + (node.module or "")
            return _definition(resolve_name(relative, module.rpartition(".")[0]), name)
    raise LookupError(f"{module} has no function {name}")


def _value(node: ast.expr | None) -> Any:
    """Evaluate an annotation or a default."""
    assert node is not None
    return eval(compile(ast.Expression(node), "<options>", "eval"), {}, NAMESPACE)


def _attributes(annotation: Any) -> dict[str, Any]:
    """Return the arguments of click.Option that an annotation denotes."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _attributes(parts[0]) | {key: value for part in parts[1:] for key, value in part.attributes.items()}
    if origin in (Union, UnionType):  # with None
        return _attributes(parts[0])
    if origin is tuple and parts[1] is ...:
        return {**_attributes(parts[0]), "multiple": True}
    if origin is Literal:
        return {"type": click.Choice(parts)}
    if annotation is bool:
        return {"is_flag": True}
    return {"type": click.Path(path_type=Path) if annotation is Path else annotation}


def _help_of(function: ast.FunctionDef) -> dict[str, dict[str, Any]]:
    """Return the help, metavar and shown default of each parameter from the Args of the docstring."""
    entries = (ast.get_docstring(function) or "").partition("\nArgs:\n")[2]
    described: dict[str, dict[str, Any]] = {}
    for entry in re.split(r"\n {4}(?=\w)", f"\n{entries}")[1:]:
        match = ENTRY.fullmatch(" ".join(entry.split()))
        assert match is not None, entry
        name, metavar, help_text, default = match.groups()
        attributes = {"metavar": metavar, "help": help_text, "show_default": default}
        described[name] = {key: value for key, value in attributes.items() if value}
    return described
