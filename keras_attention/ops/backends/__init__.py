"""Fast forms of the operations, one module for each backend."""
