"""Train a step-wise critic from exported records, on one process or many."""
