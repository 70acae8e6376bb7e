"""Commands of trainer(1) around the sampling and training: bucket, compare, report."""
