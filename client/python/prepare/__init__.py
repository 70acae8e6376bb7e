"""What `trainer prepare` and `trainer fuse` start: tasks out of data sets, and tasks that are composed."""
