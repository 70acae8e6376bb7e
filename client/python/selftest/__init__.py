"""`verifier selftest`: candidates whose verdicts are known, judged by the running daemon."""
