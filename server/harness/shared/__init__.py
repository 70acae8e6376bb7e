"""What tracer, kernel compiler, executor and oracle have in common."""
