"""What every room may use: files, progress, memory."""
