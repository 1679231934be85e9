"""When and where: Dagster definitions, the `promptmill` command, and the job files."""
