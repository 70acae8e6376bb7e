"""The commands of trainer(1) around sampling and training: run, status, report, compare, bucket, sync, resume."""
