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
  request text,
  home text COLLATE "C", -- the node that alone judges it
  made_ms bigint DEFAULT verifierd.now_ms(),
  run text COLLATE "C",
  step bigint,
  home_epoch bigint -- which life of its home it has: one that ended is nobody's home
);
CREATE INDEX submission_group_client ON submission_group (client, id) WHERE client IS NOT NULL;
CREATE INDEX submission_group_run ON submission_group (run, id) WHERE run IS NOT NULL;
CREATE INDEX submission_group_run_step ON submission_group (run, step, id) WHERE run IS NOT NULL;
CREATE FUNCTION note_home() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  new.home_epoch := (SELECT epoch FROM verifierd.node WHERE name = new.home);
  RETURN new;
END $$;
CREATE TRIGGER group_home BEFORE UPDATE OF home ON submission_group FOR EACH ROW
  EXECUTE FUNCTION note_home();
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
  verdict text,
  run text COLLATE "C",
  step bigint
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
CREATE INDEX submission_run ON submission (run, id) WHERE run IS NOT NULL;
CREATE INDEX submission_run_step ON submission (run, step, id) WHERE run IS NOT NULL;
-- Of models, that sources were found in: they go with their submission, whoever removes it.
CREATE TABLE answer (
  id text COLLATE "C" PRIMARY KEY REFERENCES submission ON DELETE CASCADE,
  size bigint NOT NULL,
  data bytea NOT NULL
);
ALTER TABLE answer ALTER data SET STORAGE EXTERNAL; -- it is compressed
-- cancel: it is to be cancelled, whoever has it; together: its group, which one node at a time judges;
-- gpu: that it asks for; handed_on: a node that only compiles has let it through; client: whose it is.
CREATE TABLE job (
  id text COLLATE "C" PRIMARY KEY,
  state smallint NOT NULL,
  priority smallint NOT NULL,
  attempts int NOT NULL,
  claim bigint NOT NULL,
  node text COLLATE "C",
  cancel smallint NOT NULL DEFAULT 0,
  together text COLLATE "C",
  gpu text COLLATE "C",
  handed_on bool NOT NULL DEFAULT false,
  client text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
CREATE INDEX job_runs ON job (node) WHERE state = 1;
CREATE INDEX job_cancel ON job (id) WHERE cancel > 0;
CREATE INDEX job_new ON job (priority, id)
  WHERE state = 0 AND NOT handed_on AND gpu IS NULL AND together IS NULL;
CREATE INDEX job_handed ON job (id) WHERE state = 0 AND handed_on;
CREATE INDEX job_flow ON job (coalesce(gpu, ''), priority, client, id) WHERE state = 0;
CREATE INDEX job_client ON job (client, state);
-- What a node that only compiles made (claims.c).
CREATE UNLOGGED TABLE carried (
  id text COLLATE "C" PRIMARY KEY REFERENCES job ON DELETE CASCADE,
  about text NOT NULL,
  size bigint NOT NULL,
  data bytea NOT NULL
);
ALTER TABLE carried ALTER data SET STORAGE EXTERNAL; -- it is compressed
CREATE TABLE node (
  name text COLLATE "C" PRIMARY KEY,
  epoch bigint NOT NULL,
  lease_until_ms bigint NOT NULL,
  draining bool NOT NULL DEFAULT false,
  about text -- what it tells the others of itself
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
  PERFORM verifierd.count_one(new.state, 1);
  RETURN NULL;
END $$;
-- What a sweep removes is counted once for each statement, and their leaders go with them.
CREATE FUNCTION count_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM verifierd.count_one(state, (-count(*))::int) FROM gone WHERE state >= 2 GROUP BY state;
  DELETE FROM verifierd.leader WHERE id = ANY (ARRAY(SELECT id FROM gone));
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
CREATE TRIGGER submission_removed AFTER DELETE ON submission REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION count_removed();
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
  wait_ms bigint NOT NULL DEFAULT 0,
  device_ms bigint NOT NULL DEFAULT 0,
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
-- Failures by run and task; nodes of this version read both tables.
CREATE TABLE cause (
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
CREATE INDEX cause_oldest ON cause (start_s);
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
-- Sums by run and step (labels.h). A scope is here that of the submission's own client, "" where it has
-- none; what is asked for of all clients is added up. bin_0 to bin_8 count speed-ups by size (rows.c).
CREATE TABLE run_sum (
  run text COLLATE "C" NOT NULL, scope text COLLATE "C" NOT NULL,
  node text COLLATE "C" NOT NULL,
  n bigint NOT NULL, infra bigint NOT NULL, ok bigint NOT NULL, cheats bigint NOT NULL,
  rewarded bigint NOT NULL, reward_sum double precision NOT NULL,
  speedup double precision, bin_0 bigint NOT NULL, bin_1 bigint NOT NULL,
  bin_2 bigint NOT NULL, bin_3 bigint NOT NULL, bin_4 bigint NOT NULL,
  bin_5 bigint NOT NULL, bin_6 bigint NOT NULL, bin_7 bigint NOT NULL,
  bin_8 bigint NOT NULL,
  first_step bigint, last_step bigint, first_ms bigint NOT NULL,
  last_ms bigint NOT NULL, PRIMARY KEY (run, scope, node)
);
CREATE TABLE run_step (
  run text COLLATE "C" NOT NULL, scope text COLLATE "C" NOT NULL,
  node text COLLATE "C" NOT NULL,
  step bigint NOT NULL, task_id text COLLATE "C" NOT NULL,
  n bigint NOT NULL, infra bigint NOT NULL, ok bigint NOT NULL, cheats bigint NOT NULL,
  rewarded bigint NOT NULL, reward_sum double precision NOT NULL,
  speedup double precision, bin_0 bigint NOT NULL, bin_1 bigint NOT NULL,
  bin_2 bigint NOT NULL, bin_3 bigint NOT NULL, bin_4 bigint NOT NULL,
  bin_5 bigint NOT NULL, bin_6 bigint NOT NULL, bin_7 bigint NOT NULL,
  bin_8 bigint NOT NULL,
  PRIMARY KEY (run, step, task_id, scope, node)
);
-- The oldest program that can live with this schema, by the version that it knows.
ALTER TABLE meta ADD oldest int NOT NULL DEFAULT 5;
