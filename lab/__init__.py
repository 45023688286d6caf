"""The laboratory: runs the benchmark programs on several allocators and compares. Standard library only."""
