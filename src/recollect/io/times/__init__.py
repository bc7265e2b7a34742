"""Time columns of tables: dates as people write them, the grain, and the bins of every row."""
