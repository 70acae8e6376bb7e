-- Whose it is, for claims (claims.c). What a node of the version before adds is nobody's, and it sorts
-- what waits when it claims.
ALTER TABLE job ADD COLUMN IF NOT EXISTS client text COLLATE "C" NOT NULL DEFAULT '';
DROP INDEX IF EXISTS job_waits, job_gpu;
