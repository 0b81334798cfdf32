"""Intervals and comparisons of functions of sums over items; users import `tensormetrics.uncertainty`.

`philox` draws random bits from an address, and `weights` turns them into the weight of each item in each replicate, a
function of the item's id. `units` keeps the sums of each item or group, `draws` makes draws of a value that are
reliable for few of them, `swaps` has the tests of a comparison. `resampling` holds the sums of all replicates, which
`intervals` and `paired` read; `statements` combines the draws and the test into one result. `corrections` is for
multiple tests. The base of metrics that keep such sums is `core.metric.sum_metric`.
"""
