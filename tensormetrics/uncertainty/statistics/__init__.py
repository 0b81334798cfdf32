"""Statistics of samples and effects: moments, densities, quantiles, pooling, and tests over folds and data sets.

Built on `engine`, not on metrics.
"""
