"""`AccuracyCalculator`: many scores by name from one search, as testers of metric learning call it."""
