import pytest
import scipy.optimize
import torch
from torch.nn.functional import binary_cross_entropy

from tensormetrics.assignment import HungarianMatcher, LinearAssignment, linear_sum_assignment, pairs


def boxes(*shape):
    return torch.cat([torch.rand(*shape, 2), 0.05 + 0.3 * torch.rand(*shape, 2)], -1)


@pytest.fixture
def scene():
    """Three images: 4 targets, none, and more targets than queries."""
    outputs = {
        "pred_logits": torch.randn(3, 6, 5),
        "pred_boxes": boxes(3, 6),
        "pred_masks": torch.randn(3, 6, 8, 9),
    }
    targets = [
        {"labels": torch.randint(0, 5, (n,)), "boxes": boxes(n), "masks": (torch.rand(n, 8, 9) < 0.4)}
        for n in (4, 0, 9)
    ]
    return outputs, targets


def area(box):
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def giou_loop(a, b):
    a, b = ([c[0] - c[2] / 2, c[1] - c[3] / 2, c[0] + c[2] / 2, c[1] + c[3] / 2] for c in (a.tolist(), b.tolist()))
    inner = area([max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])])
    hull = area([min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])])
    union = area(a) + area(b) - inner
    return inner / union - (hull - union) / hull


def cost_loop(outputs, target, image, weights, class_cost):
    """One pair at a time, in float64, written from the papers' formulas."""
    logits, predicted, masks = (outputs[k][image].double() for k in ("pred_logits", "pred_boxes", "pred_masks"))
    cost = torch.zeros(len(logits), len(target["labels"]), dtype=torch.float64)
    for q in range(cost.shape[0]):
        for t in range(cost.shape[1]):
            label, box, mask = target["labels"][t], target["boxes"][t].double(), target["masks"][t].double()
            if class_cost == "softmax":
                class_term = -torch.exp(logits[q, label]) / torch.exp(logits[q]).sum()
            else:
                p = 1 / (1 + torch.exp(-logits[q, label]))
                class_term = -0.25 * (1 - p) ** 2 * p.log() + 0.75 * p**2 * (1 - p).log()
            p = masks[q].sigmoid()
            dice = 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)
            l1 = (predicted[q] - box).abs().sum()
            terms = (class_term, l1, -giou_loop(predicted[q], box), binary_cross_entropy(p, mask), dice)
            cost[q, t] = sum(w * term for w, term in zip(weights, terms, strict=True))
    return cost


@pytest.mark.parametrize("class_cost", ["softmax", "focal"])
@pytest.mark.parametrize("weights", [(1, 5, 2, 0, 0), (2, 0, 0, 5, 5), (0, 1, 0, 0, 0), (1, 2, 3, 4, 5)])
def test_equals_a_loop_over_images_with_scipy(scene, weights, class_cost):
    outputs, targets = scene
    matcher = HungarianMatcher(*weights, class_cost=class_cost, num_points=None)
    costs, lengths = matcher._costs(outputs, targets, None)
    found = matcher(outputs, targets)
    assert lengths == [4, 0, 9] and len(found) == 3
    for image, (queries, chosen) in enumerate(found):
        expected = cost_loop(outputs, targets[image], image, weights, class_cost)
        torch.testing.assert_close(costs[image, :, : lengths[image]].double(), expected, rtol=1e-4, atol=1e-5)
        rows, columns = scipy.optimize.linear_sum_assignment(expected.numpy())
        assert queries.dtype == chosen.dtype == torch.int64
        assert queries.tolist() == rows.tolist() and chosen.tolist() == columns.tolist()


def test_points_follow_the_generator(scene):
    outputs, targets = scene
    for target in targets:
        target["masks"] = torch.rand(len(target["labels"]), 16, 18)  # another resolution than the prediction
    matcher = HungarianMatcher(0, 0, 0, 1, 1, num_points=50)
    first, again, other = (
        matcher._costs(outputs, targets, torch.Generator().manual_seed(seed))[0] for seed in (3, 3, 4)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_points_are_interpolated_between_pixels():
    logits = torch.linspace(-4, 4, 64).expand(1, 1, 64, 64)  # one prediction, equal to the target's logits
    target = [{"masks": (logits[0] > 0).float()}]
    opposite = torch.cat([logits, -logits], 1)
    costs, _ = HungarianMatcher(0, 0, 0, 1, 1, num_points=4000)._costs({"pred_masks": opposite}, target, None)
    pixels, _ = HungarianMatcher(0, 0, 0, 1, 1, num_points=None)._costs({"pred_masks": opposite}, target, None)
    torch.testing.assert_close(costs, pixels, rtol=0.05, atol=0.02)
    assert costs[0, 0, 0] < costs[0, 1, 0]


def test_half_precision_and_autocast(scene):
    outputs, targets = scene
    half = {name: tensor.bfloat16() for name, tensor in outputs.items()}
    widened = {name: tensor.float() for name, tensor in half.items()}
    matcher = HungarianMatcher()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = matcher(half, targets)
    for a, b in zip(found, matcher(widened, targets), strict=True):
        assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])


def test_boxes_without_area_are_matched():
    outputs = {"pred_boxes": torch.zeros(1, 2, 4)}
    ((queries, chosen),) = HungarianMatcher(0, 1, 1)(outputs, [{"boxes": torch.zeros(1, 4)}])
    assert len(queries) == 1 and chosen.tolist() == [0]


def test_no_images():
    assert HungarianMatcher(1, 0, 0)({"pred_logits": torch.zeros(0, 3, 2)}, []) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda o, t: o.pop("pred_boxes"),
            "outputs: got ['pred_logits', 'pred_masks'], wanted 'pred_boxes' too, or cost_bbox=0",
        ),
        (lambda o, t: t.pop(), "targets: got 2 for 3 images, wanted one per image"),
        (lambda o, t: t[1].pop("labels"), "targets[1]: got ['boxes', 'masks'], wanted 'labels' too, or cost_class=0"),
        (lambda o, t: t[2].update(boxes=torch.zeros(9, 5)), "targets[2]['boxes']: got shape (9, 5), wanted (n, 4)"),
        (
            lambda o, t: t[0].update(boxes=torch.zeros(3, 4)),
            "targets: labels and boxes differ in length: [[4, 0, 9], [3, 0, 9]]",
        ),
        (
            lambda o, t: o.update(pred_logits=torch.zeros(3, 5)),
            "outputs['pred_logits']: got shape (3, 5), wanted (B, Q, K)",
        ),
    ],
)
def test_bad_input(scene, change, message):
    change(*scene)
    with pytest.raises(ValueError) as error:
        HungarianMatcher()(*scene)
    assert str(error.value) == message


def test_bad_options():
    with pytest.raises(ValueError, match="got weights 0 for all of cost_class, cost_bbox"):
        HungarianMatcher(0, 0, 0)
    with pytest.raises(ValueError, match="class_cost: got 'sigmoid', wanted one of 'softmax', 'focal'"):
        HungarianMatcher(class_cost="sigmoid")


def test_pairs_are_what_scipy_returns():
    cost = torch.rand(5, 7, dtype=torch.float64)
    for matrix in (cost, cost.mT):
        rows, columns = pairs(linear_sum_assignment(matrix))
        expected = scipy.optimize.linear_sum_assignment(matrix.numpy())
        assert rows.tolist() == expected[0].tolist() and columns.tolist() == expected[1].tolist()
    with pytest.raises(ValueError, match=r"assignment: got shape \(2, 5\), wanted \(R,\)"):
        pairs(linear_sum_assignment(torch.rand(2, 5, 7)))


def test_module_holds_the_options():
    cost = torch.rand(4, 3, 3)
    solved = LinearAssignment(maximize=True)(cost, row_lengths=torch.tensor([3, 2, 1, 0]))
    expected = linear_sum_assignment(cost, maximize=True, row_lengths=torch.tensor([3, 2, 1, 0]))
    assert all(torch.equal(a, b) for a, b in zip(solved, expected, strict=True))
