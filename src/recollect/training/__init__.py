"""Train a model: recipe, objectives, negatives, sampler, row selection, trainer, run, callbacks, search."""
