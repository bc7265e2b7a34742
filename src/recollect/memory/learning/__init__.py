"""Learning: fit a memory to a graph, grow it by a change, learn it again from where it is."""
