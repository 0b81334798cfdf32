"""HungarianMatcher.layers against DETR's published matcher, on one thread of this machine's CPU.

The rival is the algorithm that DETR publishes (Carion et al. 2020, its matcher and criterion), one layer at a time.
Matchers get the same outputs, and their pairs are asserted to be equal before they are timed in turns. The last column
is a profile of our matcher by torch operators.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from _common import Table, arguments
from _detr import Outputs, Pairs, Targets, match_layer
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from tensormetrics.assignment import HungarianMatcher

NEEDS = ("scipy",)
DEVICES = ("cpu",)

WEIGHTS = {"cost_class": 1.0, "cost_bbox": 5.0, "cost_giou": 2.0}


def boxes(*shape: int) -> Tensor:
    return torch.cat([torch.rand(*shape, 2), 0.05 + 0.3 * torch.rand(*shape, 2)], -1)


def step(layers: int, images: int, queries: int, max_targets: int, classes: int) -> tuple[Outputs, Targets]:
    """Return the outputs of a decoder in a training step, and the targets."""

    def layer() -> Outputs:
        return {"pred_logits": torch.randn(images, queries, classes), "pred_boxes": boxes(images, queries)}

    counts = torch.randint(1, max_targets + 1, (images,)).tolist()
    targets = [{"labels": torch.randint(0, classes, (n,)), "boxes": boxes(n)} for n in counts]
    return layer() | {"aux_outputs": [layer() for _ in range(layers - 1)]}, targets


def match_step(outputs: Outputs, targets: Targets, class_cost: str) -> list[Pairs]:
    final = {name: value for name, value in outputs.items() if name != "aux_outputs"}
    return [match_layer(layer, targets, WEIGHTS, class_cost) for layer in (final, *outputs["aux_outputs"])]


def assert_equal_pairs(ours: list[Pairs], theirs: list[Pairs]) -> None:
    for layer, (our_layer, their_layer) in enumerate(zip(ours, theirs, strict=True)):
        for image, (a, b) in enumerate(zip(our_layer, their_layer, strict=True)):
            assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]), f"layer {layer}, image {image}: {a} != {b}"


def cases(quick: bool) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    yield "DETR", "softmax", (6, 16, 300, 100, 92)
    if not quick:
        yield "DETR, focal", "focal", (6, 16, 300, 100, 91)
        yield "few targets", "softmax", (6, 16, 100, 20, 92)
        yield "900 queries, focal", "focal", (6, 4, 900, 100, 91)
        yield "one layer, one image", "softmax", (1, 1, 100, 20, 92)


def times(calls: dict[str, Any], budget: float) -> dict[str, float]:
    """Return the median seconds of each call, over 5 to 30 turns within the budget."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    first = time.perf_counter()
    while min(map(len, took.values())) < 5 or (time.perf_counter() - first < budget and len(took["ours"]) < 30):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            took[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in took.items()}


def row(name: str, class_cost: str, sizes: tuple[int, ...], budget: float) -> Iterator[list[str]]:
    torch.manual_seed(0)
    outputs, targets = step(*sizes)
    matcher = HungarianMatcher(**WEIGHTS, class_cost=class_cost)
    layer = {name: value for name, value in outputs.items() if name != "aux_outputs"}
    assert_equal_pairs(matcher.layers(outputs, targets), match_step(outputs, targets, class_cost))
    took = times(
        {
            "ours": lambda: matcher.layers(outputs, targets),
            "one by one": lambda: [matcher(output, targets) for output in (layer, *outputs["aux_outputs"])],
            "theirs": lambda: match_step(outputs, targets, class_cost),
        },
        budget,
    )
    shape = "{} layers x {} images x {} queries x 1 to {} targets".format(*sizes[:4])
    figures = [f"{1e3 * took[key]:.2f}" for key in ("ours", "one by one", "theirs")]
    yield [
        f"{name}: {shape}",
        *figures,
        f"{took['theirs'] / took['ours']:.1f}x",
        largest_operators(matcher, outputs, targets),
    ]


def largest_operators(matcher: HungarianMatcher, outputs: Outputs, targets: Targets) -> str:
    """Return the torch operators that take most of the time, with their percentages."""
    matcher.layers(outputs, targets)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(5):
            matcher.layers(outputs, targets)
    events = profiled.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    largest = sorted(events, key=lambda event: -event.self_cpu_time_total)[:6]
    return ", ".join(
        f"{event.key.rpartition('::')[2]} {100 * event.self_cpu_time_total / total:.0f} %" for event in largest
    )


def main() -> None:
    options = arguments(__doc__, DEVICES)
    torch.set_num_threads(1)
    notes = (
        "Medians on one thread; x: how many times longer DETR's matcher takes. One by one: ours, a call for each.\n"
        "Last column: shares of the operators in ours."
    )
    columns = ["step", "layers ms", "one by one ms", "DETR's ms", "DETR's / layers", "profile"]
    table = Table(options, "HungarianMatcher", columns, notes, ("scipy", "numpy"))
    for name, class_cost, sizes in cases(options.quick):
        table.add(row(name, class_cost, sizes, 1.0 if options.quick else 10.0))
    table.finish()


if __name__ == "__main__":
    main()
