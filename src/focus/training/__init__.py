"""Training in rounds: collect, credit, update, publish, judge."""
