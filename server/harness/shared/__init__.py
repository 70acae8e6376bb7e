"""Shared by tracer, kernel compiler, executor and oracle."""
