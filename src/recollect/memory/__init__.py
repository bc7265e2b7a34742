"""The memory: recall, know, projection, bundle."""
