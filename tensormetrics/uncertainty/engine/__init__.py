"""How sure is a number? What all domains build on; `tensormetrics.uncertainty` is what users import.

`estimates` has the words: `Estimate`, `Comparison`, the ends of an interval. `philox` draws random words from an
address. `weights` makes of them the weight of each item in each replicate, a function of the item's id. `resampling`
reads intervals and comparisons off sums of reweighted items. `corrections` is for many questions at once. The base of
metrics that keep such sums is `_sum_metric.py`, beside `_metric.py`.
"""
