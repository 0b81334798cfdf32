"""Products of rows that are rounded to bytes rule most references out, on a CPU that multiplies bytes."""
