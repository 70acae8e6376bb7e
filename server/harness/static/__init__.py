"""Reads a source, and the files that a compile child left, in processes that run neither."""
