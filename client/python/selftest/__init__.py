"""`verifier selftest`: candidates with known verdicts, judged by the running daemon."""
