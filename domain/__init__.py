"""What happened and what may happen: events, aggregates, rules. Pure: no clock, no randomness, no I/O."""
