"""Graph breaks of `torch.compile` and their reasons."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def break_graph(reason: str) -> None:
    """End the graph of `torch.compile` here. With ``fullgraph=True`` that is an error, which says the reason."""
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(msg=reason)


def breaks_graph(reason: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function before whose call a graph ends, for a reason that an error of ``fullgraph=True`` says."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            break_graph(reason)
            return function(*args, **kwargs)

        return call

    return decorate
