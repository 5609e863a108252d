"""What the library itself costs, as ratios to plain code that does the least possible."""
