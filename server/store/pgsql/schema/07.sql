-- Failures by run and task, beside the table that nodes of a version before go on with; how long
-- verdicts waited, and held devices. What was counted before has none of these.
ALTER TABLE trend ADD COLUMN IF NOT EXISTS wait_ms bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS device_ms bigint NOT NULL DEFAULT 0;
CREATE TABLE IF NOT EXISTS cause (
  scope text COLLATE "C" NOT NULL,
  start_s bigint NOT NULL,
  node text COLLATE "C" NOT NULL,
  run text COLLATE "C" NOT NULL, -- "": none
  task_id text COLLATE "C" NOT NULL,
  class text COLLATE "C" NOT NULL,
  failed_at text COLLATE "C" NOT NULL,
  message text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  first_ms bigint NOT NULL,
  last_ms bigint NOT NULL,
  last_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (scope, start_s, node, run, task_id, class, failed_at, message)
);
CREATE INDEX IF NOT EXISTS cause_oldest ON cause (start_s);
