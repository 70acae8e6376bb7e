"""What is told of a source, and of what a compile child left, by processes that run neither."""
