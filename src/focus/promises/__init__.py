"""What FOCUS promises, row by row, and the code that measures it."""
