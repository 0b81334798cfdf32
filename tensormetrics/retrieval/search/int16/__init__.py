"""Products of rows that are rounded to 16 bits rule most references out, on a CPU that multiplies such numbers."""
