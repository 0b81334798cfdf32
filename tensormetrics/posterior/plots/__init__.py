"""Plots of posterior densities, differences and forests.

Built on `summaries` and `comparison`.
"""
