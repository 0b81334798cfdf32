"""Scores of embeddings by the ranks of relevant neighbours: a file for each family, and the bases of the metrics."""
