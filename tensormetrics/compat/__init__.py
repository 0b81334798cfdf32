"""Names and arguments of other packages: `wefe`, `prob_conf_mat`, `metametric`, `pytorch_metric_learning`.

A program written for one of them runs when its import lines become `from tensormetrics.compat.<package> import ...`.
These modules rename, call and print; formulas are in the domains, which never import this package.
"""
