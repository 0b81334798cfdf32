"""`torch.compile` breaks the graph, with a one-sentence reason, at functions that cannot be part of it."""

import pytest
import torch

from tensormetrics.assignment import linear_sum_assignment
from tensormetrics.retrieval import TorchKNN
from tensormetrics.retrieval.functional import adjusted_mutual_info, contingency, normalized_mutual_info

KNN = TorchKNN()
ROWS, LABELS = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)), torch.arange(50) * 7 % 5
SEARCHES = "TorchKNN searches outside of graphs: how it does depends on the values of the rows"
COUNTS = "contingency counts outside of graphs: the size of its table depends on the labels"
SOLVES = "linear_sum_assignment reads costs and solutions with check=True; write check=False for one graph"
FUNCTIONS = {
    "TorchKNN": (lambda x: KNN(2 * x, 3, 2 * x, True)[1] + 1, ROWS, SEARCHES),
    "TorchKNN, made inside": (lambda x: TorchKNN("cosine")(2 * x, 3, 2 * x, True)[1] + 1, ROWS, SEARCHES),
    "linear_sum_assignment": (lambda x: linear_sum_assignment(2 * x).cost + 1, ROWS, SOLVES),
    "linear_sum_assignment of integers": (lambda x: linear_sum_assignment((9 * x).long()).cost + 1, ROWS, SOLVES),
    "adjusted_mutual_info": (lambda y: 1 - adjusted_mutual_info(y, y // 2), LABELS, COUNTS),
    "normalized_mutual_info": (lambda y: 1 - normalized_mutual_info(y, y // 2), LABELS, COUNTS),
    "contingency": (lambda y: contingency(y, y // 2).count + 1, LABELS, COUNTS),
}


FIRST = "TorchKNN", "linear_sum_assignment", "contingency"  # one for each sentence


@pytest.mark.parametrize(
    "name", [*FIRST, *(pytest.param(name, marks=pytest.mark.full) for name in FUNCTIONS if name not in FIRST)]
)
def test_compile_with_fullgraph_raises_reason_of_graph_break(name):
    function, argument, sentence = FUNCTIONS[name]
    torch.compiler.reset()
    with pytest.raises(Exception, match=sentence):
        torch.compile(function, fullgraph=True, backend="eager")(argument)
    torch.compiler.reset()
    assert torch.equal(torch.compile(function, backend="eager")(argument), function(argument))
