"""Trusted code that runs plans (proto/plan.md): operators by name, kernels from compiled images."""
