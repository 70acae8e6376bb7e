"""The trusted side: inputs, expected outputs, comparison, timing. It runs no candidate's code."""
