"""What makes parts of the package, and is not in it."""
