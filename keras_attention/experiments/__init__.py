"""The paper's tables and figures: its numbers as data, and runs that are compared with them."""
