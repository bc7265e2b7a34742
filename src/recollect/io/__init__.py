"""Read and write tables, raw events, datasets and export formats."""
