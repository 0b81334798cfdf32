"""Scores of clusterings against labels, and k-means to make clusters of embeddings."""
