import pytest
import scipy.optimize
import torch
from raising import raises
from torch.nn.functional import binary_cross_entropy

from tensormetrics.assignment import HungarianMatcher, LinearAssignment, linear_sum_assignment, pairs


def boxes(*shape):
    return torch.cat([torch.rand(*shape, 2), 0.05 + 0.3 * torch.rand(*shape, 2)], -1)


@pytest.fixture
def scene():
    """Make three images: 4 targets, none, and more targets than queries."""
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
    """Compute the cost of one pair after another in float64, by the formulas of the papers."""
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
def test_matcher_batch_equals_scipy_per_image(scene, weights, class_cost):
    outputs, targets = scene
    matcher = HungarianMatcher(*weights, class_cost=class_cost, num_points=None)
    lengths = [len(target["labels"]) for target in targets]
    costs = matcher._costs([outputs], targets, max(lengths), None)
    matches = matcher(outputs, targets)
    assert lengths == [4, 0, 9] and len(matches) == 3
    for image, (queries, target_indices) in enumerate(matches):
        expected = cost_loop(outputs, targets[image], image, weights, class_cost)
        # Sides of boxes are at least 1/20 of their corners: areas are within 80 eps, and all terms within 200.
        tolerance = 200 * torch.finfo(torch.float32).eps * sum(weights)
        torch.testing.assert_close(costs[image, :, : lengths[image]].double(), expected, rtol=0, atol=tolerance)
        rows, columns = scipy.optimize.linear_sum_assignment(expected.numpy())
        assert queries.dtype == target_indices.dtype == torch.int64
        assert queries.tolist() == rows.tolist() and target_indices.tolist() == columns.tolist()


def test_matcher_points_depend_on_generator(scene):
    outputs, targets = scene
    for target in targets:
        target["masks"] = torch.rand(len(target["labels"]), 16, 18)  # another resolution than the prediction
    matcher = HungarianMatcher(0, 0, 0, 1, 1, num_points=50)
    first, again, other = (
        matcher._costs([outputs], targets, 9, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_matcher_point_costs_approximate_pixel_costs():
    logits = torch.linspace(-4, 4, 64).expand(1, 1, 64, 64)  # one prediction, equal to the target's logits
    target = [{"masks": (logits[0] > 0).float()}]
    opposite = torch.cat([logits, -logits], 1)
    costs = HungarianMatcher(0, 0, 0, 1, 1, num_points=4000)._costs([{"pred_masks": opposite}], target, 1, None)
    pixels = HungarianMatcher(0, 0, 0, 1, 1, num_points=None)._costs([{"pred_masks": opposite}], target, 1, None)
    torch.testing.assert_close(costs, pixels, rtol=0.05, atol=0.02)
    assert costs[0, 0, 0] < costs[0, 1, 0]


def test_matcher_bfloat16_equals_widened_inputs(scene):
    outputs, targets = scene
    half = {name: tensor.bfloat16() for name, tensor in outputs.items()}
    widened = {name: tensor.float() for name, tensor in half.items()}
    matcher = HungarianMatcher()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        matches = matcher(half, targets)
    assert_equal_pairs(matches, matcher(widened, targets))


def test_matcher_boxes_without_area_are_matched():
    outputs = {"pred_boxes": torch.zeros(1, 2, 4)}
    ((queries, target_indices),) = HungarianMatcher(0, 1, 1)(outputs, [{"boxes": torch.zeros(1, 4)}])
    assert len(queries) == 1 and target_indices.tolist() == [0]


def test_matcher_no_images_returns_no_pairs():
    assert HungarianMatcher(1, 0, 0)({"pred_logits": torch.zeros(0, 3, 2)}, []) == []


NONFINITE = pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf], ids=str)


@NONFINITE
@pytest.mark.parametrize("name", ["pred_logits", "pred_boxes", "pred_masks"])
def test_matcher_nonfinite_query_is_avoided(scene, value, name):
    """The others are matched as if it were absent; the matches of other images stay."""
    outputs, targets = scene
    matcher = HungarianMatcher(1, 5, 2, 5, 5, num_points=None)
    clean = matcher(outputs, targets)
    assert matcher.status.tolist() == [0, 0, 0] and matcher.status.dtype == torch.int8
    lost = int(clean[0][0][1])  # a query that has a target
    rest = [query for query in range(6) if query != lost]
    (without_lost,) = matcher({key: tensor[:1, rest] for key, tensor in outputs.items()}, targets[:1])
    outputs[name][0, lost].view(-1)[0] = value
    matches = matcher(outputs, targets)
    if name == "pred_logits" and value < 0:  # a class of probability 0 has a cost
        assert matcher.status.tolist() == [0, 0, 0]
        return
    assert matcher.status.tolist() == [1, 0, 0]
    assert matches[0][0].tolist() == [rest[query] for query in without_lost[0].tolist()]
    assert matches[0][1].tolist() == without_lost[1].tolist()
    assert_equal_pairs(matches[1:], clean[1:])


@NONFINITE
def test_matcher_scarce_finite_queries_add_nonfinite_ones(scene, value):
    outputs, targets = scene
    outputs["pred_boxes"][0, :3] = value  # 3 queries are left for 4 targets
    outputs["pred_boxes"][1] = value  # an image without targets
    outputs["pred_boxes"][2, 4] = value  # 9 targets for 6 queries
    matcher = HungarianMatcher()
    matches = matcher(outputs, targets)
    assert matcher.status.tolist() == [2, 0, 2]
    assert {3, 4, 5} < set(matches[0][0].tolist()) and sorted(matches[0][1].tolist()) == [0, 1, 2, 3]
    assert [part.tolist() for part in matches[1]] == [[], []]
    assert matches[2][0].tolist() == list(range(6)) and len(set(matches[2][1].tolist())) == 6
    assert all((part >= 0).all() for pair in matches for part in pair)
    outputs["pred_boxes"][:] = value
    none_left = [[sorted(part.tolist()) for part in pair] for pair in matcher(outputs, targets)[:2]]
    assert [len({*part} & {*range(6)}) for part in none_left[0]] == [4, 4] and none_left[0][1] == [0, 1, 2, 3]
    assert none_left[1] == [[], []] and matcher.status.tolist() == [2, 0, 2]


def test_matcher_nan_target_keeps_other_matches(scene):
    outputs, targets = scene
    matcher = HungarianMatcher(0, 1, 1)
    targets[0]["boxes"][1] = torch.nan
    matches = matcher(outputs, targets)[0]
    rest = [dict(targets[0], boxes=targets[0]["boxes"][[0, 2, 3]])]
    without_nan = matcher({"pred_boxes": outputs["pred_boxes"][:1]}, rest)[0]
    partner = dict(zip(matches[1].tolist(), matches[0].tolist(), strict=True))
    assert [partner[i] for i in (0, 2, 3)] == without_nan[0][without_nan[1].argsort()].tolist() and 1 in partner


@pytest.mark.parametrize("size", [0.0, 1e-8, 1.0, 1e20])
def test_matcher_equal_or_extreme_costs_precede_nonfinite(size):
    predicted = torch.full((1, 40, 4), size)
    predicted[0, :20, 0] = torch.nan
    matcher = HungarianMatcher(0, 1, 0)
    ((queries, _),) = matcher({"pred_boxes": predicted}, [{"boxes": torch.zeros(20, 4)}])
    assert queries.tolist() == list(range(20, 40)) and matcher.status.tolist() == [1]


def test_matcher_raise_names_image_and_nonfinite_input(scene):
    outputs, targets = scene
    matcher = HungarianMatcher(nonfinite="raise")
    assert_equal_pairs(matcher(outputs, targets), HungarianMatcher()(outputs, targets))
    outputs["pred_boxes"][1] = torch.nan  # no targets, no cost
    matcher(outputs, targets)
    outputs["pred_boxes"][2, 3, 1] = torch.nan
    with raises(
        ValueError,
        "image 2: got a cost that is no finite number for query 3 and target 0, from outputs['pred_boxes']; "
        "wanted finite numbers, or nonfinite='avoid' to match the others",
    ):
        matcher(outputs, targets)


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
        (
            lambda o, t: o.update(pred_logits=o["pred_logits"].long()),
            "outputs['pred_logits']: got torch.int64, wanted a floating dtype; write outputs['pred_logits'].float()",
        ),
        (
            lambda o, t: t[0]["labels"].fill_(7),
            "targets: got the label 7, wanted 0 to 4 for 5 classes in outputs['pred_logits']",
        ),
        (
            lambda o, t: t[0].update(labels=t[0]["labels"].float()),
            "targets[0]['labels']: got torch.float32, wanted an integer dtype; write targets[0]['labels'].long()",
        ),
    ],
)
def test_matcher_invalid_input_raises(scene, change, message):
    change(*scene)
    with raises(ValueError, message):
        HungarianMatcher()(*scene)


def test_matcher_uint8_labels_equal_int64(scene):
    outputs, targets = scene
    narrow = [target | {"labels": target["labels"].to(torch.uint8)} for target in targets]
    assert_equal_pairs(HungarianMatcher()(outputs, narrow), HungarianMatcher()(outputs, targets))


def test_matcher_names_of_transformers_and_empty_targets_without_shape(decoder):
    (final, *others), targets = decoder
    layers = [{"logits": layer.pop("pred_logits"), **layer} for layer in map(dict, (final, *others))]
    told = [{"class_labels": target["labels"], **{k: target[k] for k in ("boxes", "masks")}} for target in targets]
    order = [1, 0, 2]  # the image without targets is first
    told[1] = dict.fromkeys(told[1], torch.tensor([]))
    matcher = HungarianMatcher(1, 5, 2, 5, 5, num_points=None)
    expected = matcher.layers(final | {"aux_outputs": others}, targets)
    layers = [{name: tensor[order] for name, tensor in layer.items()} for layer in layers]
    matches = matcher.layers(layers[0] | {"auxiliary_outputs": layers[1:]}, [told[i] for i in order])
    assert_equal_pairs([[layer[i] for i in order] for layer in matches], expected)
    assert_equal_pairs(matcher(layers[0], [told[i] for i in order]), matches[0])


def test_matcher_other_containers_raise_type_error(scene):
    outputs, targets = scene
    with pytest.raises(TypeError, match="outputs: got a list, wanted a dict such as"):
        HungarianMatcher()(list(outputs.values()), targets)
    with pytest.raises(TypeError, match="targets: got no list of dicts, wanted one for each image"):
        HungarianMatcher()(outputs, targets[0])
    with pytest.raises(TypeError, match="targets: got None, wanted a list"):
        HungarianMatcher()(outputs, None)


def test_matcher_invalid_options_raise():
    with pytest.raises(ValueError, match="cost_bbox: got '1', wanted a finite number"):
        HungarianMatcher(cost_bbox="1")
    with pytest.raises(ValueError, match="got weights 0 for all of cost_class, cost_bbox"):
        HungarianMatcher(0, 0, 0)
    with pytest.raises(ValueError, match="class_cost: got 'sigmoid', wanted one of 'softmax', 'focal'"):
        HungarianMatcher(class_cost="sigmoid")
    with pytest.raises(ValueError, match="nonfinite: got 'ignore', wanted one of 'avoid', 'raise'"):
        HungarianMatcher(nonfinite="ignore")


@pytest.mark.parametrize(
    "others",
    [
        {"aux_outputs": [{"pred_logits": torch.zeros(1, 1, 1)}]},
        {"dn_meta": {"num_dn": 3}},
        {"enc_outputs": None, "time": 0.5},
        {"pred_masks": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_first", [True, False])
def test_matcher_other_outputs_are_ignored(scene, others, is_first):
    outputs, targets = scene
    del outputs["pred_masks"]
    expected = HungarianMatcher()(outputs, targets)
    assert_equal_pairs(HungarianMatcher()(others | outputs if is_first else outputs | others, targets), expected)


def assert_equal_pairs(pairs, expected):
    torch.testing.assert_close(pairs, expected, rtol=0, atol=0)


@pytest.fixture
def decoder(scene):
    """Return the outputs of four layers, and the targets."""
    outputs, targets = scene
    others = [{name: tensor + torch.randn(3, 1, *tensor.shape[2:]) for name, tensor in outputs.items()} for _ in "abc"]
    return [outputs, *others], targets


@pytest.mark.parametrize("class_cost", ["softmax", "focal"])
@pytest.mark.parametrize("weights", [(1, 5, 2, 0, 0), (0, 1, 0, 0, 0), (1, 2, 3, 4, 5)])
def test_layers_list_equals_separate_calls(decoder, weights, class_cost):
    (final, *others), targets = decoder
    matcher = HungarianMatcher(*weights, class_cost=class_cost, num_points=7)
    for_calls, for_layers = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    expected = [matcher(layer, targets, for_calls) for layer in (final, *others)]
    matches = matcher.layers(final | {"aux_outputs": others, "dn_meta": {}}, targets, for_layers)
    assert len(matches) == 4 and matcher.status.shape == (4, 3)
    assert_equal_pairs(matches, expected)


def test_layers_stacked_tensor_returns_final_layer_first(decoder):
    (final, *others), targets = decoder
    stacked = {name: torch.stack([layer[name] for layer in (*others, final)]) for name in final}
    matcher = HungarianMatcher(1, 5, 2, 1, 1, num_points=None)
    expected = matcher.layers(final | {"aux_outputs": others}, targets)
    assert_equal_pairs(matcher.layers(stacked | {"aux_outputs": None}, targets), expected)


def test_layers_single_layer_returns_list_of_one(scene):
    outputs, targets = scene
    (matches,) = HungarianMatcher().layers(outputs, targets)
    assert_equal_pairs(matches, HungarianMatcher()(outputs, targets))
    assert HungarianMatcher(1, 0, 0).layers({"pred_logits": torch.zeros(2, 0, 3, 2)}, []) == [[], []]


def test_layers_nonfinite_query_is_avoided_in_its_layer(decoder):
    (final, *others), targets = decoder
    matcher = HungarianMatcher()
    before = matcher.layers(final | {"aux_outputs": others}, targets)
    others[1]["pred_boxes"][0, 2] = torch.nan
    matches = matcher.layers(final | {"aux_outputs": others}, targets)
    assert matcher.status.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert 2 not in matches[2][0][0].tolist()
    assert_equal_pairs(matches[:2] + matches[3:], before[:2] + before[3:])
    with pytest.raises(ValueError, match="layer 2 of the result, image 0: got a cost that is no finite number for"):
        HungarianMatcher(nonfinite="raise").layers(final | {"aux_outputs": others}, targets)


@pytest.mark.parametrize(
    ("others", "error", "message"),
    [
        ([None], TypeError, "outputs['aux_outputs'][0]: got a NoneType, wanted a dict such as {'pred_logits': ...}"),
        (
            [{"pred_logits": torch.zeros(3, 6, 5)}],
            ValueError,
            "outputs['aux_outputs'][0]: got ['pred_logits'], wanted 'pred_boxes' too, or cost_bbox=0",
        ),
        (
            [{"pred_logits": torch.zeros(3, 6, 5), "pred_boxes": torch.zeros(3, 7, 4)}],
            ValueError,
            "outputs['aux_outputs'][0]['pred_boxes']: got (B, Q) = (3, 7), wanted (3, 6) as of outputs['pred_logits']",
        ),
    ],
)
def test_layers_bad_list_is_named(scene, others, error, message):
    outputs, targets = scene
    with raises(error, message):
        HungarianMatcher().layers(outputs | {"aux_outputs": others}, targets)


def test_layers_different_counts_raise(scene):
    outputs, targets = scene
    stacked = {name: tensor.expand(4, *tensor.shape) for name, tensor in outputs.items()}
    with pytest.raises(ValueError, match=r"got \{'pred_logits': 4, 'pred_boxes': 2\} layers, wanted as many of each"):
        HungarianMatcher().layers(stacked | {"pred_boxes": stacked["pred_boxes"][:2]}, targets)
    with pytest.raises(ValueError, match=r"outputs\['pred_boxes'\]: got shape \(3, 6, 4\), wanted \(S, B, Q, 4\)"):
        HungarianMatcher().layers(stacked | {"pred_boxes": outputs["pred_boxes"]}, targets)


def test_pairs_of_matrix_equal_scipy():
    cost = torch.rand(5, 7, dtype=torch.float64)
    for matrix in (cost, cost.mT):
        rows, columns = pairs(linear_sum_assignment(matrix))
        expected = scipy.optimize.linear_sum_assignment(matrix.numpy())
        assert rows.tolist() == expected[0].tolist() and columns.tolist() == expected[1].tolist()
    with pytest.raises(ValueError, match=r"assignment: got shape \(2, 5\), wanted \(R,\)"):
        pairs(linear_sum_assignment(torch.rand(2, 5, 7)))


def test_module_options_equal_function():
    cost = torch.rand(4, 3, 3)
    assignment = LinearAssignment(maximize=True)(cost, row_lengths=torch.tensor([3, 2, 1, 0]))
    expected = linear_sum_assignment(cost, maximize=True, row_lengths=torch.tensor([3, 2, 1, 0]))
    assert all(torch.equal(a, b) for a, b in zip(assignment, expected, strict=True))
