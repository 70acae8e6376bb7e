"""Started by `trainer prepare` and `trainer fuse`: tasks from data sets, and composed tasks."""
