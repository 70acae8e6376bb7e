"""The tracer: runs a candidate's module on fake tensors and writes down a plan. Hostile code runs here."""
