"""Intervals and comparisons of values that are read off sums of items; users import `tensormetrics.uncertainty`.

`philox` draws random bits from an address, and `weights`
makes of them the weight of each item in each replicate, a function of the item's id. `units` keeps the sums of each
item or group, `draws` makes draws of a value that are honest for few of them, `swaps` has the tests of a comparison.
`resampling` holds the sums of all replicates, which `intervals` and `paired` read; `statements` makes one answer of the
draws and the test. `corrections` is for many questions at once. The base of metrics that keep such sums is
`_sum_metric.py`, beside `_metric.py`.
"""
