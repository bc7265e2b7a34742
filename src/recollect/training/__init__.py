"""Train a model: recipe, losses, negatives, sampler, trainer, run."""
