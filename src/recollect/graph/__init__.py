"""What a graph is: facts, vocabularies, the time axis, the fact index, runs and splits."""
