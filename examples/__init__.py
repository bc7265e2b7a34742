"""Examples: programs that use recollect as its users do."""
