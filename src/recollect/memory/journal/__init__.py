"""Changes of a saved memory: their inputs, their effect on the store, the durable journal, folders that are watched."""
