"""Score facts by the stored facts of the same two entities: which predicate goes with which, at which lag."""
