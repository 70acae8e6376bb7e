"""What knows the right answer: inputs, comparison, timing. It runs no candidate's code."""
