"""Models as multilinear equations: notation, zoo, tensor model, time knots."""
