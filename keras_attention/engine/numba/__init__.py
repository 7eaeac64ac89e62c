"""The engine for CPUs, compiled by Numba."""
