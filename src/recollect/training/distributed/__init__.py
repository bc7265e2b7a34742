"""Training by several processes at once, started by torchrun. See README.md."""
