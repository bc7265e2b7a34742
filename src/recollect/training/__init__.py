"""Train a model: recipes, losses, objectives, sampler, row selection, trainer, runs, callbacks, auto, search."""
