"""What each command of `promptmill` does, one module each; none is imported before it is asked."""
