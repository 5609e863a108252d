"""A game small enough that the policy is a table and its gradient is known exactly."""
