"""Smatch: the triples that two AMR graphs share under the best mapping of their variables."""

import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from ...core.arguments import checks
from ...core.arguments.callers import level_of_caller
from ...core.resampling.weights import ResamplingUnits
from ...core.text.files import read_text
from ...core.text.joining import Item, join_paths
from ...core.text.tables import blocks_of
from ..objects.nodes.node import Variable
from ..tensors._integer_program import check_solver
from ..tensors._lengths import in_chunks
from ..tensors.latent.latent import latent_overlap
from ..tensors.normalizers import normalize
from ..tensors.reduction import CountMetric
from ._tables import sizes
from .structures import AMR, Prop

# Without a handler anywhere, penman's warnings of a malformed graph would reach stderr beside the error.
logging.getLogger("penman").addHandler(logging.NullHandler())

COMMENT = re.compile(r"::(id|snt)\s+(.*?)\s*(?=\s::|$)")
NEVER_INVERSE = ("consist-of", "prep-out-of", "prep-on-behalf-of")  # names that end in -of but are no inverse roles


Triple = tuple[str, str, str | None]  # source, role, target: a variable has an `instance` triple; None is left out


def read_penman(text: str, top: bool | str = True) -> list[Prop]:
    """Read the triples of a graph in PENMAN notation; see `read_triples`.

    Args:
        text: One graph.
        top: Triple of the root: True, (root, top, "top"); "concept", (root, top, its concept); False, none.

    Returns:
        The triples, normalized.

    Raises:
        ValueError: If the text is no graph, has anything after it, or defines a variable twice.

    >>> [(prop.subj.name, prop.pred) for prop in read_penman("(w / want :ARG0 (b / boy))")]
    [('w', 'instance'), ('w', 'arg0'), ('b', 'instance'), ('w', 'top')]
    """
    try:
        import penman
        from penman.models import amr
    except ImportError as error:
        raise ImportError("text: PENMAN notation is read by penman; write pip install penman") from error
    if not isinstance(text, str):
        raise TypeError(f"text: got {type(text).__name__}, wanted a str; write text.decode() for bytes")
    text = text.removeprefix("\ufeff")  # byte order mark of some editors
    shown = f"text: {text[:60]!r}"
    try:
        graph = penman.interpret(_only_tree(penman, text, shown), model=amr.model)
    except penman.exceptions.PenmanError as error:
        reason = getattr(error, "message", None) or error
        raise ValueError(f"{shown} is no graph in PENMAN notation: {reason}") from error
    except RecursionError as error:
        raise ValueError(f"{shown} nests its nodes deeper than penman reads them; wanted some hundreds") from error
    defined = Counter(variable for variable, role, _ in graph.triples if role == ":instance")
    if twice := next((variable for variable, times in defined.items() if times > 1), None):
        raise ValueError(f"{shown} defines the variable {twice} twice; wanted other names, or the name alone")
    return read_triples(graph.triples, top, graph.top)


def _only_tree(penman: Any, text: str, shown: str) -> Any:
    """Parse the only graph of a text.

    The parser stops silently where no graph begins: then it does not reach a graph appended to the text.
    """
    try:
        trees = list(penman.iterparse(f"{text}\n(end / end)"))
    except penman.exceptions.PenmanError:
        trees = []
    if len(trees) == 2:
        return trees[0]
    graphs = list(penman.iterparse(text))  # raises if a graph is malformed
    if len(graphs) != 1:
        raise ValueError(f"{shown} holds {len(graphs)} graphs in PENMAN notation, wanted one")
    raise ValueError(f"{shown} is no graph in PENMAN notation: there is more text after the graph")


def read_triples(triples: Iterable[Triple], top: bool | str = True, root: str | None = None) -> list[Prop]:
    """Normalize triples as Smatch does.

    Roles and constants are lowercased and unquoted; the inverse role in (x, role-of, y) is inverted; (x, mod, y)
    between variables becomes (y, domain, x).

    Args:
        triples: (source, role, target) each.
        top: Triple of the root: True, (root, top, "top"); "concept", (root, top, its concept); False, none.
        root: By default the source of the first triple.

    Returns:
        The triples, normalized.

    Raises:
        ValueError: If a triple or an option is invalid.

    >>> props = read_triples([("w", "instance", "want"), ("b", "ARG0-of", "w")], top=False)
    >>> [(prop.subj.name, prop.pred) for prop in props]  # the inverse role is inverted
    [('w', 'instance'), ('w', 'arg0')]
    """
    checks.check_choice("top", top, (True, False, "concept"))
    triples = checks.as_list("triples", triples)
    if wrong := [triple for triple in triples if not isinstance(triple, tuple | list) or len(triple) != 3]:
        raise ValueError(f"triples: got {wrong[0]!r:.60}, wanted (source, role, target)")
    if wrong := [triple for triple in triples if not isinstance(triple[1], str)]:
        raise TypeError(f"triples: got {wrong[0]!r:.60}, wanted a text as role")
    triples = [(source, role.lstrip(":").lower(), target) for source, role, target in triples]
    concepts = {source: target for source, role, target in triples if role == "instance"}
    props = [_prop(source, role, target, concepts) for source, role, target in triples if target is not None]
    root = root if root is not None or not triples else triples[0][0]
    if top and root is not None:
        label = concepts.get(root) if top == "concept" else "top"
        if label is not None:
            props.append(Prop(Variable(root), "top", _normalize_constant(label)))
    return props


def _prop(source: str, role: str, target: str, concepts: dict[str, str | None]) -> Prop:
    if role == "instance" or target not in concepts:
        return Prop(Variable(source), role, _normalize_constant(target))
    if role.endswith("-of") and role not in NEVER_INVERSE:
        source, role, target = target, role.removesuffix("-of"), source
    if role == "mod":
        source, role, target = target, "domain", source
    return Prop(Variable(source), role, Variable(target))


def _normalize_constant(constant: str) -> str:
    if not isinstance(constant, str):
        raise TypeError(f"triples: got the target {constant!r:.60}, wanted a text such as {str(constant)!r:.60}")
    return constant.strip('"').lower()


class Smatch(CountMetric):
    """Precision, recall and F1 of the triples of AMR graphs (S. Cai, K. Knight, 2013, aclanthology.org/P13-2131).

    `update` takes two lists of graphs: PENMAN text, `AMR`s, lists of `Prop`s or of (source, role, target) triples; or
    the paths of two files of graphs, which are joined by their `::id`, or else by position with equal `::snt`.
    `compute` gives `precision`, `recall`, `f1`; `exact`, the fraction of pairs with a match that is
    proved to be the best; and `bound-f1`, an upper bound of the F1 of the best matches. `update` matches the graphs on
    the host and does not synchronize with the metric's device.

    Args:
        top: Triple of the root: True, (root, top, "top"); "concept", (root, top, its concept); False, none.
        solver: "search", a local search; "auto", then integer programs where a bound is above the value; "exact",
            without a limit of nodes.
        restarts: Number of random mappings from which the search starts.
        node_limit: Largest number of nodes of an integer program of "auto".
        seed: Seed of the starts.
        on_invalid: "raise" an error for a prediction that is no graph, or "wrong": warn, and count it without triples.

    >>> metric = Smatch()
    >>> metric.update(["(w / want :ARG0 (b / boy))"], ["(w / want :ARG0 (g / girl))"])
    >>> round(float(metric.compute()["f1"]), 3)
    0.75
    """

    def __init__(
        self,
        top: bool | str = True,
        solver: str = "auto",
        restarts: int = 4,
        average: str = "micro",
        node_limit: int = 200_000,
        seed: int = 0,
        on_invalid: str = "raise",
        **kwargs: Any,
    ) -> None:
        super().__init__(6, average, seed=seed, **kwargs)
        checks.check_choice("on_invalid", on_invalid, ("raise", "wrong"))
        checks.check_choice("top", top, (True, False, "concept"))
        check_solver(solver, node_limit)
        checks.check_int("restarts", restarts, 0)
        self.top, self.on_invalid = top, on_invalid
        self.options: dict[str, Any] = {"solver": solver, "restarts": restarts, "node_limit": node_limit, "seed": seed}

    def update(
        self,
        preds: Sequence[Any] | str | PathLike,
        refs: Sequence[Any] | str | PathLike,
        **items: Unpack[ResamplingUnits],
    ) -> None:
        """Add pairs of graphs, or of files of them."""

        def read(path: str | PathLike) -> list[Item]:
            return read_amr_file(path, self.top, "raise" if path is refs else self.on_invalid)

        if not (isinstance(preds, str) and preds.lstrip()[:1] in ("(", "#")):
            preds, refs = join_paths(preds, refs, read, "graph")
        sides: dict[str, Any] = {"preds": preds, "refs": refs}
        for name, graphs in sides.items():
            if isinstance(graphs, str | bytes):
                raise TypeError(f"{name}: got a {type(graphs).__name__}, wanted a list of graphs; write [{name}]")
        checks.check_consistent_length(**sides)
        constants: dict[Variable | str, int] = {}
        pred, ref = (
            _read_all(name, {f"{name}[{i}]": graph for i, graph in enumerate(graphs)}, self.top, on_invalid)
            for (name, graphs), on_invalid in zip(sides.items(), (self.on_invalid, "raise"), strict=True)
        )
        tables = [*_encode(pred, constants), *_encode(ref, constants)]
        n_pred, n_ref = sizes(pred), sizes(ref)
        lengths = (n_pred, n_pred, n_ref, n_ref)
        # Lists and the solver are on the host: no table is copied to a device, and nothing synchronizes with one.
        counts = in_chunks(self._count, tables, lengths, lambda n, _, m, __: (n + m) ** 2, flat=True)
        self.add_documents(counts.to(self.device, non_blocking=True), **items)

    def _count(self, *args: Tensor) -> Tensor:
        # props, is_var (D, N, 3) of prediction and reference, then their lengths (D,) each  ->  (D, 6)
        pred_props, pred_is_var, ref_props, ref_is_var, n_pred, _, n_ref, _ = args
        solution = latent_overlap(pred_props, pred_is_var, ref_props, ref_is_var, n_pred, n_ref, **self.options)
        columns = (solution.value, n_pred, n_ref, solution.exact, solution.bound, torch.ones_like(n_pred))
        return torch.stack([column.double() for column in columns], -1)

    def read_scores(self, counts: Tensor) -> dict[str, Tensor]:
        # counts: (..., 6)  ->  name: (...)
        matched, pred, ref, exact, bound, documents = counts.unbind(-1)
        scores = {name: normalize(matched, pred, ref, name) for name in ("precision", "recall", "f1")}
        return scores | {"exact": exact / documents, "bound-f1": normalize(bound, pred, ref, "f1")}


def read_amr_file(path: str | PathLike, top: bool | str = True, on_invalid: str = "raise") -> list[Item]:
    """Return the triples of the graphs of a file, which blank lines separate, with their `::id`s and `::snt`s."""
    graphs: dict[str, str] = {}
    items = []
    for block in blocks_of(read_text(path)):
        rows = [(line, text) for line, text in block if not text.startswith("#")]
        comments = {
            name: (line, value) for line, text in block for name, value in COMMENT.findall(text) if text[0] == "#"
        }
        if rows:
            graphs[f"{path}, line {rows[0][0]}"] = "".join(text for _, text in rows)
            (line, sentence), (_, id) = (comments.get(name, (rows[0][0], None)) for name in ("snt", "id"))
            items.append(Item(None, [line], [sentence or ""], id))
    values = _read_all(str(path), graphs, top, on_invalid)
    return [item._replace(value=value) for item, value in zip(items, values, strict=True)]


def _read_all(name: str, graphs: dict[str, Any], top: bool | str, on_invalid: str) -> list[list[Prop]]:
    # graphs: by their place
    """Read graphs; with `on_invalid="wrong"` those that are none have no triples."""
    values, invalid = [], []
    for where, graph in graphs.items():
        try:
            values.append(_read(graph, top, where))
        except ValueError as error:
            if on_invalid == "raise":
                raise
            invalid.append(error)
            values.append([])
    if invalid:
        count = f"{len(invalid)} of {len(values)}"
        warnings.warn(
            f"{name}: {count} are no graphs and count as wrong, first {invalid[0]}", stacklevel=level_of_caller()
        )
    return values


def _read(graph: Any, top: bool | str, where: str) -> list[Prop]:
    if isinstance(graph, str):
        try:
            return read_penman(graph, top)
        except ValueError as error:
            raise ValueError(f"{where}: {str(error).removeprefix('text: ')}") from error
    if isinstance(graph, bytes):
        raise TypeError(f"{where}: got bytes, wanted PENMAN text; write graph.decode()")
    items = list(graph.props if isinstance(graph, AMR) else graph) if isinstance(graph, AMR | Iterable) else [graph]
    if all(isinstance(item, Prop) for item in items):
        return items
    for item in items:
        if not (isinstance(item, tuple | list) and len(item) == 3):
            raise TypeError(f"{where}: got {item!r:.60}, wanted PENMAN text, an AMR, Props or triples of three texts")
    try:
        return read_triples(items, top)
    except (AttributeError, TypeError) as error:
        raise TypeError(f"{where}: got {items!r:.60}, wanted triples of three texts: {error}") from error


def _encode(graphs: list[list[Prop]], constants: dict[Variable | str, int]) -> tuple[Tensor, Tensor]:
    # -> props (T, 3), is_var (T, 3) of the triples of all graphs; `constants` grows
    codes, kinds = [], []
    for graph in graphs:
        variables: dict[Variable | str, int] = {}
        for prop in graph:
            row = (prop.subj, prop.pred, prop.obj)
            kind = [isinstance(entry, Variable) for entry in row]
            tables = (variables if is_var else constants for is_var in kind)
            codes.append([table.setdefault(entry, len(table)) for entry, table in zip(row, tables, strict=True)])
            kinds.append(kind)
    return torch.tensor(codes, dtype=torch.int64, device="cpu").view(-1, 3), torch.tensor(
        kinds, dtype=torch.bool, device="cpu"
    ).view(-1, 3)
