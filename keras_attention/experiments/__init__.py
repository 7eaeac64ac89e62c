"""The paper's tables and figures: its numbers as data, and the runs that stand beside them."""
