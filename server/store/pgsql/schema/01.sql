-- What waits or runs has a narrow row in job, which claims change; submission is written when it is
-- made and when it ends, so that no claim rewrites its texts and its indices. Its state is 0 until
-- then, and the job's says whether it runs.
--
-- What every verdict adds to (tally, trend, failure, task_sum) has a row for each node: nodes that
-- write the same row would wait for each other's commit, or for each other. Who reads adds them up.
--
-- Ids are compared byte by byte (COLLATE "C").
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
  'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';
CREATE TABLE blob (
  hash text COLLATE "C" PRIMARY KEY,
  size bigint NOT NULL,
  data bytea NOT NULL
);
ALTER TABLE blob ALTER data SET STORAGE EXTERNAL; -- it is compressed
CREATE TABLE task (
  id text COLLATE "C" PRIMARY KEY,
  name text,
  entry_point text,
  level int NOT NULL,
  dynamic_shapes bool NOT NULL,
  created_ms bigint NOT NULL,
  reference_hash text COLLATE "C" NOT NULL,
  metadata text,
  spec text
);
CREATE INDEX task_name ON task (name, id);
CREATE INDEX task_reference ON task (reference_hash);
CREATE TABLE task_alias (
  client text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  task_id text COLLATE "C" NOT NULL,
  created_ms bigint NOT NULL,
  PRIMARY KEY (client, name)
);
CREATE INDEX task_alias_oldest ON task_alias (name, created_ms);
CREATE INDEX task_alias_task ON task_alias (task_id);
CREATE TABLE submission_group (
  id text COLLATE "C" PRIMARY KEY,
  task_id text COLLATE "C" NOT NULL,
  size int NOT NULL,
  created_ms bigint NOT NULL,
  client text COLLATE "C",
  request text
);
CREATE INDEX submission_group_client ON submission_group (client, id) WHERE client IS NOT NULL;
CREATE TABLE submission (
  id text COLLATE "C" PRIMARY KEY,
  group_id text COLLATE "C",
  group_index int NOT NULL,
  task_id text COLLATE "C" NOT NULL,
  source_hash text COLLATE "C" NOT NULL,
  state smallint NOT NULL CHECK (state IN (0, 2, 3)),
  priority smallint NOT NULL,
  attempts int NOT NULL,
  claim bigint NOT NULL DEFAULT 0,
  created_ms bigint NOT NULL,
  finished_ms bigint NOT NULL,
  device_ms bigint,
  reward double precision,
  client text COLLATE "C",
  stage text,
  class text COLLATE "C",
  log_hash text COLLATE "C",
  cache_key text COLLATE "C",
  cached_from text COLLATE "C",
  brief text,
  request text,
  verdict text
);
CREATE UNIQUE INDEX submission_group_index ON submission (group_id, group_index)
  WHERE group_id IS NOT NULL;
CREATE INDEX submission_task ON submission (task_id, id);
CREATE INDEX submission_client ON submission (client, id) WHERE client IS NOT NULL;
CREATE INDEX submission_class ON submission (class, id) WHERE class IS NOT NULL;
CREATE INDEX submission_task_class ON submission (task_id, class, id) WHERE class IS NOT NULL;
CREATE INDEX submission_cancelled ON submission (id) WHERE state = 3;
CREATE INDEX submission_cache ON submission (cache_key, id) WHERE cache_key IS NOT NULL;
CREATE INDEX submission_cached_from ON submission (cached_from) WHERE cached_from IS NOT NULL;
CREATE INDEX submission_finished ON submission (finished_ms, id) WHERE finished_ms > 0;
CREATE INDEX submission_logged ON submission (finished_ms, id) WHERE log_hash IS NOT NULL;
CREATE INDEX submission_source ON submission (source_hash);
CREATE INDEX submission_log ON submission (log_hash) WHERE log_hash IS NOT NULL;
CREATE TABLE job (
  id text COLLATE "C" PRIMARY KEY,
  state smallint NOT NULL,
  priority smallint NOT NULL,
  attempts int NOT NULL,
  claim bigint NOT NULL,
  node text COLLATE "C"
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
CREATE INDEX job_waits ON job (priority, id) WHERE state = 0;
CREATE INDEX job_runs ON job (node) WHERE state = 1;
CREATE TABLE node (
  name text COLLATE "C" PRIMARY KEY,
  epoch bigint NOT NULL,
  lease_until_ms bigint NOT NULL
) WITH (fillfactor = 20);
CREATE TABLE writer (id text PRIMARY KEY, n bigint NOT NULL, at_ms bigint NOT NULL) WITH (fillfactor = 20);
CREATE TABLE calibration (
  id text COLLATE "C" PRIMARY KEY,
  created_ms bigint NOT NULL,
  gpu text COLLATE "C" NOT NULL,
  document text NOT NULL
);
CREATE TABLE canary (
  gpu text COLLATE "C" NOT NULL,
  driver text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  changed_ms bigint NOT NULL,
  document text NOT NULL,
  PRIMARY KEY (gpu, driver, kind)
);
CREATE TABLE idempotency (
  client text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  request_hash text NOT NULL,
  id text COLLATE "C" NOT NULL,
  created_ms bigint NOT NULL,
  PRIMARY KEY (client, key)
);
CREATE INDEX idempotency_created ON idempotency (created_ms);
CREATE INDEX idempotency_id ON idempotency (id);
CREATE TABLE tally (what int, node text, n bigint NOT NULL, PRIMARY KEY (what, node)) WITH (fillfactor = 20);
CREATE FUNCTION count_one(counted int, by int) RETURNS void LANGUAGE sql AS $$
  INSERT INTO verifierd.tally AS t VALUES (counted, coalesce(current_setting('verifierd.node', true), ''), by)
  ON CONFLICT (what, node) DO UPDATE SET n = t.n + excluded.n
$$;
CREATE FUNCTION count_submission() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN PERFORM verifierd.count_one(old.state, -1);
  ELSE PERFORM verifierd.count_one(new.state, 1); END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION count_task() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM verifierd.count_one(100, CASE TG_OP WHEN 'DELETE' THEN -1 ELSE 1 END);
  RETURN NULL;
END $$;
CREATE TRIGGER submission_added AFTER INSERT ON submission FOR EACH ROW WHEN (new.state >= 2)
  EXECUTE FUNCTION count_submission();
CREATE TRIGGER submission_ended AFTER UPDATE OF state ON submission FOR EACH ROW
  WHEN (old.state < 2 AND new.state >= 2) EXECUTE FUNCTION count_submission();
CREATE TRIGGER submission_removed AFTER DELETE ON submission FOR EACH ROW WHEN (old.state >= 2)
  EXECUTE FUNCTION count_submission();
CREATE TRIGGER task_counted AFTER INSERT OR DELETE ON task FOR EACH ROW EXECUTE FUNCTION count_task();
CREATE TABLE trend (
  span_s int NOT NULL,
  scope text COLLATE "C" NOT NULL,
  start_s bigint NOT NULL,
  class text COLLATE "C" NOT NULL,
  failed_at text COLLATE "C" NOT NULL,
  passed text COLLATE "C" NOT NULL,
  reward_bin int NOT NULL,
  node text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  reward_sum double precision NOT NULL,
  PRIMARY KEY (span_s, scope, start_s, class, failed_at, passed, reward_bin, node)
);
CREATE INDEX trend_oldest ON trend (span_s, start_s);
CREATE TABLE failure (
  scope text COLLATE "C" NOT NULL,
  start_s bigint NOT NULL,
  node text COLLATE "C" NOT NULL,
  class text COLLATE "C" NOT NULL,
  failed_at text COLLATE "C" NOT NULL,
  message text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  first_ms bigint NOT NULL,
  last_ms bigint NOT NULL,
  last_id text COLLATE "C" NOT NULL,
  PRIMARY KEY (scope, start_s, node, class, failed_at, message)
);
CREATE INDEX failure_oldest ON failure (start_s);
CREATE TABLE task_sum (
  scope text COLLATE "C" NOT NULL,
  task_id text COLLATE "C" NOT NULL,
  node text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  ok bigint NOT NULL,
  cheats bigint NOT NULL,
  reward double precision,
  speedup double precision,
  last_ms bigint NOT NULL,
  PRIMARY KEY (scope, task_id, node)
);
CREATE TABLE leader (
  id text COLLATE "C" PRIMARY KEY,
  task_id text COLLATE "C" NOT NULL,
  client text COLLATE "C",
  speedup double precision,
  speedup_lo double precision,
  speedup_hi double precision,
  candidate_ms double precision,
  reference_ms double precision,
  reward double precision,
  gpu text,
  finished_ms bigint NOT NULL
);
CREATE INDEX leader_task ON leader (task_id, speedup DESC NULLS LAST, reward DESC NULLS LAST, id DESC);
CREATE INDEX leader_task_client ON leader
  (task_id, client, speedup DESC NULLS LAST, reward DESC NULLS LAST, id DESC);
CREATE TABLE record (
  scope text COLLATE "C" NOT NULL,
  task_id text COLLATE "C" NOT NULL,
  finished_ms bigint NOT NULL,
  id text COLLATE "C" NOT NULL,
  speedup double precision NOT NULL,
  PRIMARY KEY (scope, task_id, finished_ms, id)
);
CREATE INDEX record_id ON record (id);
