"""Bipartite matching of predictions and targets for set-prediction losses (DETR and its descendants)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ..core.arguments import checks
from ..core.arguments.repr import RecordedArguments
from .matching_costs import ClassCost, at_points, check_labels, class_costs, generalized_iou, mask_costs, pad_to
from .solver import linear_sum_assignment

Pairs = list[tuple[Tensor, Tensor]]
Outputs = Mapping[str, Any]  # tensors by name, and other outputs of a model
Targets = Sequence[Mapping[str, Tensor]]


class Input(NamedTuple):
    """Inputs of a cost term: names and shapes in the outputs and in the targets."""

    output: str
    output_shape: tuple[int | str, ...]
    target: str
    target_shape: tuple[int | str, ...]


LOGITS = Input("pred_logits", ("B", "Q", "K"), "labels", ("n",))
BOXES = Input("pred_boxes", ("B", "Q", 4), "boxes", ("n", 4))
MASKS = Input("pred_masks", ("B", "Q", "H", "W"), "masks", ("n", "H'", "W'"))
INPUTS = {"cost_class": LOGITS, "cost_bbox": BOXES, "cost_giou": BOXES, "cost_mask": MASKS, "cost_dice": MASKS}

ALIASES = {"logits": "pred_logits", "auxiliary_outputs": "aux_outputs", "class_labels": "labels"}  # of transformers


class HungarianMatcher(RecordedArguments, nn.Module):
    """Matcher of queries and targets with minimal total cost for each image, on the device of the predictions.

    The cost of a pair is a weighted sum; a weight of 0 disables a term and its inputs. All images are solved at once,
    and with `layers` all layers of a decoder; no cost leaves the device and, by default, nothing synchronizes with it.

    Args:
        cost_class: Weight of the class term.
        cost_bbox, cost_giou: Weights of the L1 distance, and of minus generalized IoU, of boxes (cx, cy, w, h).
        cost_mask, cost_dice: Weights of binary cross entropy, and of 1 - Dice coefficient, of masks.
        class_cost: "softmax", minus the probability of the target's class, or "focal", the difference of its positive
            and negative focal loss, from sigmoids.
        alpha, gamma: Parameters of the focal loss.
        num_points: Number of random points per image at which masks are compared; None: all pixels, and predicted and
            target masks have one resolution.
        nonfinite: "avoid" matches pairs with NaN or infinite cost only if no others are left, and sets `status` (B,)
            int8 of the last call: 0 all costs are finite; 1 some are not, and were avoided; 2 one had to be matched.
            "raise" reads one flag, which synchronizes with a GPU.

    Raises:
        ValueError: If an option is out of range, a label is no class, or with "raise" an image has a cost that is not
            finite. With "avoid" on a GPU the costs of a wrong label are NaN, and the error comes in the first call that
            begins after the GPU has seen the label.

    Carion et al. 2020, doi:10.1007/978-3-030-58452-8_13; Zhu et al. 2021, doi:10.48550/arXiv.2010.04159;
    Cheng et al. 2022, doi:10.1109/CVPR52688.2022.00135; Rezatofighi et al. 2019, doi:10.1109/CVPR.2019.00075

    >>> boxes = torch.full((1, 2, 4), 0.5)  # of one image with two queries
    >>> outputs = {"pred_logits": torch.tensor([[[2.0, 0.0], [0.0, 2.0]]]), "pred_boxes": boxes}
    >>> targets = [{"labels": torch.tensor([1]), "boxes": boxes[0, :1]}]
    >>> HungarianMatcher()(outputs, targets)  # query 1 has the target 0
    [(tensor([1]), tensor([0]))]
    """

    def __init__(
        self,
        cost_class: float = 1.0,
        cost_bbox: float = 1.0,
        cost_giou: float = 1.0,
        cost_mask: float = 0.0,
        cost_dice: float = 0.0,
        *,
        class_cost: ClassCost = "softmax",
        alpha: float = 0.25,
        gamma: float = 2.0,
        num_points: int | None = 12544,
        nonfinite: Literal["avoid", "raise"] = "avoid",
    ) -> None:
        super().__init__()
        checks.check_choice("nonfinite", nonfinite, ("avoid", "raise"))
        weights = cost_class, cost_bbox, cost_giou, cost_mask, cost_dice
        checks.check_choice("class_cost", class_cost, ("softmax", "focal"))
        values = zip((*INPUTS, "alpha", "gamma"), (*weights, alpha, gamma), strict=True)
        for name, value in values:
            checks.check_number(name, value, "a finite number", math.isfinite)
        self.weights = dict(zip(INPUTS, weights, strict=True))
        if not any(self.weights.values()):
            raise ValueError(f"got weights 0 for all of {', '.join(INPUTS)}, wanted at least one other")
        self._inputs: dict[Input, str] = {}  # used inputs, and the first weight that needs them
        for weight, names in INPUTS.items():
            if self.weights[weight]:
                self._inputs.setdefault(names, weight)
        self.class_cost: ClassCost = class_cost
        self.alpha, self.gamma = alpha, gamma
        self.num_points = None if num_points is None else checks.check_int("num_points", num_points, 1)
        self.nonfinite, self.status = nonfinite, torch.zeros(0, dtype=torch.int8, device="cpu")
        # Lowest and highest wrong label of all calls on a GPU; those that the host knows; the number of classes.
        self._wrong_labels: tuple[Tensor, Tensor, int] | None = None

    @torch.no_grad()
    def forward(self, outputs: Outputs, targets: Targets, generator: Generator | None = None) -> Pairs:
        """Match the queries of one layer.

        Args:
            outputs: "pred_logits" (B, Q, K), "pred_boxes" (B, Q, 4), "pred_masks" (B, Q, H, W) logits, if a weight
                needs them; all other entries are ignored and may have any type. "logits", as in transformers, is
                read as "pred_logits".
            targets: One for each image: "labels" (n,) int64, or "class_labels", "boxes" (n, 4), "masks" (n, H', W'); n
                may be 0, and the shape of an empty one (0,).
            generator: Random generator of the points at which masks are compared; default torch's.

        Returns:
            For each image query indices, ascending, and target indices, int64 of min(Q, number of targets) entries.
        """
        (pairs,) = self._match([_renamed(outputs, "outputs")], targets, generator)
        return pairs

    @torch.no_grad()
    def layers(self, outputs: Outputs, targets: Targets, generator: Generator | None = None) -> list[Pairs]:
        """Match all layers of a decoder separately in one batched solve.

        Args:
            outputs: Outputs of the final layer, with a list of the outputs of the other layers as "aux_outputs"; or
                tensors of all layers, (S, B, Q, ...), the final one last.
            targets: As in `forward`; the same for all layers.
            generator: As in `forward`; layers draw in the order of the result.

        Returns:
            For each layer, the final one first and then the others in order, the result of `forward`. `status` of the
            matcher becomes (S, B).
        """
        pairs = self._match(self._split_layers(_renamed(outputs, "outputs")), targets, generator)
        self.status = self.status.view(len(pairs), -1)
        return pairs

    def _match(self, layers: Sequence[Outputs], targets: Targets, generator: Generator | None) -> list[Pairs]:
        if isinstance(targets, Mapping) or not all(isinstance(t, Mapping) for t in checks.as_list("targets", targets)):
            raise TypeError("targets: got no list of dicts, wanted one for each image; write [{'labels': ...}, ...]")
        targets = [self._with_shapes(_renamed(target, "targets"), layers[0]) for target in targets]
        lengths = self._check(layers, targets)
        if not lengths:
            self.status = torch.zeros(0, dtype=torch.int8, device="cpu")
            return [[] for _ in layers]
        cost = self._costs(layers, targets, max(lengths), generator)
        counts = torch.tensor(lengths, device="cpu").to(cost.device, non_blocking=True).repeat(len(layers))
        num_queries, n = cost.shape[1:]
        valid = torch.arange(n, device=cost.device) < counts[:, None, None]
        nonfinite = None if _are_ordinary(cost) else valid & ~cost.isfinite()
        if nonfinite is not None:
            if self.nonfinite == "raise" and bool(nonfinite.any()):
                self._raise(nonfinite, layers, targets)
            cost = replace_nonfinite_costs(cost, nonfinite, valid)
        solution = linear_sum_assignment(cost, col_lengths=counts, check=False)
        if nonfinite is None:
            self.status = torch.zeros(len(cost), dtype=torch.int8, device=cost.device)
        else:
            selected = solution.col_of_row[..., None] == torch.arange(n, device=cost.device)
            has_nonfinite, selects_nonfinite = (
                pairs.flatten(1).any(1).to(torch.int8) for pairs in (nonfinite, nonfinite & selected)
            )
            self.status = has_nonfinite + selects_nonfinite
        # Targets in the order of their queries, those without one last.
        query_of, target_of = solution.row_of_col.where(solution.row_of_col >= 0, num_queries).sort(-1)
        queries = torch.arange(num_queries, device=cost.device)
        pairs = [
            (query_of[image, :length], target_of[image, :length])
            if length <= num_queries
            else (queries, solution.col_of_row[image])
            for image, length in enumerate(lengths * len(layers))
        ]
        return [pairs[start : start + len(targets)] for start in range(0, len(pairs), len(targets))]

    def _split_layers(self, outputs: Outputs) -> list[Outputs]:
        """Return the outputs of each layer, the final one first."""
        if outputs.get("aux_outputs"):
            others = checks.as_list("outputs['aux_outputs']", outputs["aux_outputs"])
            return [outputs, *(_renamed(other, f"outputs['aux_outputs'][{i}]") for i, other in enumerate(others))]
        shapes = {names.output: names.output_shape for names in self._inputs}
        stacked = {name: outputs[name] for name in shapes if name in outputs}
        if not any(isinstance(value, Tensor) and value.ndim > len(shapes[name]) for name, value in stacked.items()):
            return [outputs]
        for name, value in stacked.items():
            checks.shape(f"outputs[{name!r}]", value, "S", *shapes[name])
        num_layers = {len(value) for value in stacked.values()}
        if len(num_layers) > 1 or 0 in num_layers:
            sizes = {name: len(value) for name, value in stacked.items()}
            raise ValueError(f"outputs: got {sizes} layers, wanted as many of each, and at least one")
        order = [-1, *range(num_layers.pop() - 1)]
        return [{name: value[layer] for name, value in stacked.items()} for layer in order]

    def _costs(self, layers: Sequence[Outputs], targets: Targets, n: int, generator: Generator | None) -> Tensor:
        # ->  (S * B, Q, n)
        """Sum the weighted terms of each layer; a single layer fits in the caches of a CPU."""
        padded = {
            names.target: pad_to(n, [target[names.target] for target in targets])
            for names in self._inputs
            if names is not MASKS
        }
        if LOGITS in self._inputs:
            labels, classes = padded["labels"].long(), min(layer["pred_logits"].shape[2] for layer in layers)
            if labels.is_cpu or not classes:
                check_labels(labels.cpu(), classes)
            padded["labels"] = labels.clamp(0, classes - 1)
            padded["is wrong"] = labels != padded["labels"]
            if labels.numel() and not labels.is_cpu and self.nonfinite == "avoid":
                self._check_later(labels.where(padded["is wrong"], 0), classes)
        costs = []
        for layer in layers:
            tensors = {names.output: layer[names.output] for names in self._inputs}
            with torch.autocast(next(iter(tensors.values())).device.type, enabled=False):
                outputs = {k: value.float() if value.dtype.itemsize < 4 else value for k, value in tensors.items()}
                (weight, term), *terms = self._terms(outputs, padded, targets, n, generator)
                cost = weight * term
                for weight, term in terms:
                    cost = cost.add(term, alpha=weight)
                costs.append(cost)
        return costs[0] if len(costs) == 1 else torch.cat(costs)

    def _terms(
        self,
        outputs: dict[str, Tensor],
        padded: dict[str, Tensor],
        targets: Targets,
        n: int,
        generator: Generator | None,
    ) -> Iterator[tuple[float, Tensor]]:
        # ->  weight, (B, Q, n)
        weights = self.weights
        if weight := weights["cost_class"]:
            labels = padded["labels"]
            cost = class_costs(outputs["pred_logits"], labels, self.class_cost, self.alpha, self.gamma)
            yield weight, cost if labels.is_cpu else cost.masked_fill(padded["is wrong"][:, None], torch.nan)
        if weights["cost_bbox"] or weights["cost_giou"]:
            predicted = outputs["pred_boxes"]
            boxes = padded["boxes"].to(predicted)
            if weight := weights["cost_bbox"]:
                yield weight, torch.cdist(predicted, boxes, p=1)
            if weight := weights["cost_giou"]:
                yield -weight, generalized_iou(predicted, boxes)
        if weights["cost_mask"] or weights["cost_dice"]:
            masks = [target["masks"].to(outputs["pred_masks"]) for target in targets]
            terms = mask_costs(*at_points(outputs["pred_masks"], masks, self.num_points, n, generator))
            for name, term in zip(("cost_mask", "cost_dice"), terms, strict=True):
                if weight := weights[name]:
                    yield weight, term

    def _check_later(self, wrong: Tensor, classes: int) -> None:
        # wrong: (B, n) on a GPU, the labels that are no class, else 0
        """Raise for wrong labels of earlier calls that the host knows, and queue a copy of the ends of all."""
        earlier, self._wrong_labels = self._wrong_labels, None
        if earlier is not None and earlier[0].device == wrong.device:
            classes = min(classes, earlier[2])
            check_labels(earlier[1], classes, " in an earlier call")
            wrong = torch.cat([earlier[0], wrong.flatten()])
        ends = torch.stack(wrong.aminmax())
        known = torch.zeros(2, dtype=torch.int64, device="cpu", pin_memory=ends.is_cuda)  # until the copy arrives
        self._wrong_labels = ends, known.copy_(ends, non_blocking=True), classes

    def _raise(self, nonfinite: Tensor, layers: Sequence[Outputs], targets: Targets) -> None:
        row, query, target = nonfinite.nonzero()[0].tolist()
        if self.weights["cost_class"]:
            check_labels(targets[row % len(targets)]["labels"].cpu(), layers[0]["pred_logits"].shape[2])
        layer, image = divmod(row, len(targets))
        names = zip(*((i.output, i.target) for i in self._inputs), strict=True)
        output_names, target_names = map(sorted, names)
        sources = {f"outputs[{name!r}]": layers[layer][name][image] for name in output_names}
        sources |= {f"targets[{image}][{name!r}]": targets[image][name] for name in target_names}
        faults = [name for name, value in sources.items() if not value.isfinite().all()] or ["no input, by overflow"]
        where = f"layer {layer} of the result, " if len(layers) > 1 else ""
        raise ValueError(
            f"{where}image {image}: got a cost that is no finite number for query {query} and target {target}, from "
            f"{', '.join(faults)}; wanted finite numbers, or nonfinite='avoid' to match the others"
        )

    def _with_shapes(self, target: Mapping[str, Tensor], outputs: Outputs) -> Mapping[str, Tensor]:
        """Give the tensors of a target that are empty, such as `torch.tensor([])`, the shape and dtype of others."""
        empty: dict[str, Tensor] = {}
        for names in self._inputs:
            value, output = target.get(names.target), outputs.get(names.output)
            if isinstance(value, Tensor) and value.shape == (0,) and isinstance(output, Tensor):
                sizes, dtype = ((), torch.int64) if names is LOGITS else (output.shape[2:], value.dtype)
                empty[names.target] = value.new_zeros(0, *sizes, dtype=dtype)
        return {**target, **empty} if empty else target

    def _check(self, layers: Sequence[Outputs], targets: Targets) -> list[int]:
        if not targets:
            return []
        shapes = {}
        for layer, outputs in enumerate(layers):
            where = f"outputs['aux_outputs'][{layer - 1}]" if layer else "outputs"
            for names, weight in self._inputs.items():
                shapes[f"{where}[{names.output!r}]"] = _check_output(outputs, where, weight, names)
        name, (images, queries) = next(iter(shapes.items()))
        for other, shape in shapes.items():
            if shape != (images, queries):
                raise ValueError(f"{other}: got (B, Q) = {shape}, wanted {(images, queries)} as of {name}")
        if images != len(targets):
            raise ValueError(f"targets: got {len(targets)} for {images} images, wanted one per image")
        tensors = [outputs[names.output] for outputs in layers for names in self._inputs]
        lengths = {names.target: _lengths_of(targets, weight, names, tensors) for names, weight in self._inputs.items()}
        counts = list(lengths.values())
        if any(other != counts[0] for other in counts):
            raise ValueError(f"targets: {' and '.join(lengths)} differ in length: {counts}")
        return counts[0]


def _renamed(tensors: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(tensors, Mapping):
        raise TypeError(f"{name}: got a {type(tensors).__name__}, wanted a dict such as {{'pred_logits': ...}}")
    renamed = {ours: tensors[name] for name, ours in ALIASES.items() if name in tensors and ours not in tensors}
    return {**tensors, **renamed} if renamed else tensors


def _check_output(outputs: Outputs, where: str, weight: str, names: Input) -> tuple[int, ...]:
    # ->  (B, Q)
    if names.output not in outputs:
        raise ValueError(f"{where}: got {sorted(outputs)}, wanted {names.output!r} too, or {weight}=0")
    value, name = outputs[names.output], f"{where}[{names.output!r}]"
    checks.shape(name, value, *names.output_shape)
    checks.floating(name, value)
    return tuple(value.shape[:2])


def _lengths_of(targets: Targets, weight: str, names: Input, outputs: Sequence[Tensor]) -> list[int]:
    for i, target in enumerate(targets):
        if names.target not in target:
            raise ValueError(f"targets[{i}]: got {sorted(target)}, wanted {names.target!r} too, or {weight}=0")
        value, name = target[names.target], f"targets[{i}][{names.target!r}]"
        checks.shape(name, value, *names.target_shape)
        for tensor in outputs:
            checks.same_device(outputs=tensor, targets=value)
        if names is LOGITS:
            checks.integral(name, value)
    return [len(target[names.target]) for target in targets]


def _are_ordinary(cost: Tensor) -> bool:
    """Return whether all costs are finite and far from overflow; False on a GPU, which would have to synchronize."""
    if cost.device.type != "cpu" or not cost.numel():
        return False
    low, high = (float(end) for end in cost.aminmax())
    return max(-low, high) < torch.finfo(cost.dtype).max / (4 * min(cost.shape[1:]) + 4)  # False for NaN


def replace_nonfinite_costs(cost: Tensor, nonfinite: Tensor, valid: Tensor) -> Tensor:
    # cost, nonfinite: (B, Q, N)  valid: (B, 1, N)  ->  (B, Q, N)
    """Replace non-finite costs by a value so large that an optimal matching contains as few of them as possible.

    With k pairs to match the value exceeds the largest finite cost by at least k + 1 times the range of finite costs.
    """
    if cost.numel() == 0:
        return cost
    pairs = min(cost.shape[1:])
    finite = cost.clamp(*(torch.finfo(cost.dtype).max / (4 * pairs + 4) * sign for sign in (-1, 1)))  # sums stay finite
    counted = valid & ~nonfinite
    low, high = (finite.masked_fill(~counted, -sign * torch.inf) for sign in (-1, 1))
    low, high = low.amin((1, 2), keepdim=True), high.amax((1, 2), keepdim=True)
    scale = torch.maximum(high - low, high.abs()).clamp(min=torch.finfo(cost.dtype).eps)
    above = (high + (pairs + 1) * scale).nan_to_num(0.0, 0.0, 0.0)  # 0 if all are non-finite: all cost the same
    return above.where(nonfinite, finite)
