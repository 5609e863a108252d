"""Learning per token, side by side: methods, tasks, trials, sweeps, report (see README.md)."""
