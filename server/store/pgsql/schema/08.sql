-- Which GPU a submission asks for, what a node that only compiles has let through, and what it made
-- (claims.c).
ALTER TABLE job ADD COLUMN IF NOT EXISTS gpu text COLLATE "C",
  ADD COLUMN IF NOT EXISTS handed_on bool NOT NULL DEFAULT false;
CREATE INDEX IF NOT EXISTS job_new ON job (priority, id)
  WHERE state = 0 AND NOT handed_on AND gpu IS NULL AND together IS NULL;
CREATE UNLOGGED TABLE IF NOT EXISTS carried (
  id text COLLATE "C" PRIMARY KEY REFERENCES job ON DELETE CASCADE,
  about text NOT NULL,
  size bigint NOT NULL,
  data bytea NOT NULL
);
ALTER TABLE carried ALTER data SET STORAGE EXTERNAL; -- it is compressed
