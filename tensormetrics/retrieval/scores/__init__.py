"""Scores of embeddings by the ranks of relevant neighbors: a file for each family, and the bases of the metrics."""
