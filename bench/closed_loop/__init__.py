"""The closed loop, measured: Slime's strict stand-in as the actor, real critic processes."""
