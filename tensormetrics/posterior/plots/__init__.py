"""Plots of posterior densities and of differences, built on `uncertainty.statistics` only."""
