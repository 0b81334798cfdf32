"""One file for each metric, or for metrics of one kind: a function on tensors, and the class that takes queries.

`base` runs queries on a model and is what every metric derives from; files that begin with an underscore hold what
several metrics share. Built on `embeddings`, `sets` and `resampling`.
"""
