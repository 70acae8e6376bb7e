-- The large texts come last in a row, so that a filter does not read over them. The counts that
-- /v1/status shows are kept by triggers: counting a million rows takes longer than the loop may be away.
-- For the same reason each combination of filters that can be rare among a million rows has an index;
-- those on what only a finished submission has are not touched while it waits.
--
-- state 1 without a node: left running by a daemon that had no name. cache_key: under the same key
-- stands what is judged the same, and the newest verdict answers for identical candidates. device_ms
-- counts against a client's quota of the day. brief is what a table shows of a verdict, so that a page
-- is read without reading verdicts.
CREATE TABLE blob (
  hash TEXT NOT NULL PRIMARY KEY,
  size INTEGER NOT NULL,
  data BLOB NOT NULL
);
CREATE TABLE task (
  id TEXT NOT NULL PRIMARY KEY,
  name TEXT,
  entry_point TEXT,
  level INTEGER NOT NULL,
  dynamic_shapes INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  reference_hash TEXT NOT NULL,
  metadata TEXT,
  spec TEXT
);
CREATE TABLE task_alias ( -- a client's own names of tasks
  client TEXT NOT NULL,
  name TEXT NOT NULL,
  task_id TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (client, name)
) WITHOUT ROWID;
CREATE TABLE submission_group (
  id TEXT NOT NULL PRIMARY KEY,
  task_id TEXT NOT NULL,
  size INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  client TEXT,
  run TEXT, -- labels.h
  step INTEGER,
  request TEXT
);
CREATE TABLE submission (
  id TEXT NOT NULL PRIMARY KEY,
  group_id TEXT,
  group_index INTEGER NOT NULL,
  task_id TEXT NOT NULL,
  source_hash TEXT NOT NULL,
  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3),
  priority INTEGER NOT NULL,
  client TEXT,
  attempts INTEGER NOT NULL,
  node TEXT, -- who judges it, and under which number: store.h, "ownership"
  claim INTEGER NOT NULL DEFAULT 0,
  created_ms INTEGER NOT NULL,
  finished_ms INTEGER NOT NULL,
  device_ms INTEGER,
  stage TEXT,
  class TEXT,
  reward REAL,
  run TEXT,
  step INTEGER,
  log_hash TEXT,
  cache_key TEXT,
  cached_from TEXT,
  brief TEXT,
  request TEXT,
  verdict TEXT
);
CREATE TABLE node (
  name TEXT PRIMARY KEY,
  epoch INTEGER NOT NULL,
  lease_until_ms INTEGER NOT NULL
) WITHOUT ROWID;
-- Which request of a client made what: a key that comes again is answered by it (docs/http.md).
CREATE TABLE idempotency (
  client TEXT NOT NULL,
  key TEXT NOT NULL,
  request_hash TEXT NOT NULL,
  id TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (client, key)
) WITHOUT ROWID;
-- How far a machine's times were off when it was asked: the newest of each GPU goes into later
-- verdicts.
CREATE TABLE calibration (
  id TEXT NOT NULL PRIMARY KEY,
  created_ms INTEGER NOT NULL,
  gpu TEXT NOT NULL,
  document TEXT NOT NULL
);
-- How long a GPU's canary takes: its norm, which fresh workers and a restart are judged by.
CREATE TABLE canary (
  gpu TEXT NOT NULL,
  driver TEXT NOT NULL,
  kind TEXT NOT NULL,
  changed_ms INTEGER NOT NULL,
  document TEXT NOT NULL,
  PRIMARY KEY (gpu, driver, kind)
) WITHOUT ROWID;
CREATE TABLE tally (what INTEGER PRIMARY KEY, n INTEGER NOT NULL);
INSERT INTO tally VALUES (0, 0), (1, 0), (2, 0), (3, 0), (100, 0);
PRAGMA application_id = 1986425444; -- SCHEMA_APPLICATION_ID
-- The last ones are what the sweep asks (sweep.c): the oldest that ended, and who refers to what it
-- would remove.
CREATE INDEX task_name ON task (name, id);
CREATE INDEX task_alias_oldest ON task_alias (name, created_ms);
CREATE INDEX task_alias_task ON task_alias (task_id);
CREATE INDEX submission_group_client ON submission_group (client, id) WHERE client IS NOT NULL;
CREATE INDEX submission_group_run ON submission_group (run, id) WHERE run IS NOT NULL;
CREATE INDEX submission_group_run_step ON submission_group (run, step, id) WHERE run IS NOT NULL;
CREATE INDEX submission_state ON submission (state, id);
CREATE UNIQUE INDEX submission_group_index ON submission (group_id, group_index)
  WHERE group_id IS NOT NULL;
CREATE INDEX submission_task ON submission (task_id, id, client);
CREATE INDEX submission_client ON submission (client, id) WHERE client IS NOT NULL;
CREATE INDEX submission_class ON submission (class, id) WHERE class IS NOT NULL;
CREATE INDEX submission_task_class ON submission (task_id, class, id, client) WHERE class IS NOT NULL;
CREATE INDEX submission_client_class ON submission (client, class, id)
  WHERE client IS NOT NULL AND class IS NOT NULL;
CREATE INDEX submission_cancelled_task ON submission (task_id, id) WHERE state = 3;
CREATE INDEX submission_cancelled_client ON submission (client, id)
  WHERE state = 3 AND client IS NOT NULL;
CREATE INDEX submission_cancelled_class ON submission (class, id) WHERE state = 3 AND class IS NOT NULL;
CREATE INDEX submission_cache ON submission (cache_key, id) WHERE cache_key IS NOT NULL;
CREATE INDEX submission_run ON submission (run, id) WHERE run IS NOT NULL;
CREATE INDEX submission_run_step ON submission (run, step, id) WHERE run IS NOT NULL;
CREATE INDEX idempotency_created ON idempotency (created_ms);
CREATE INDEX submission_cached_from ON submission (cached_from) WHERE cached_from IS NOT NULL;
CREATE INDEX submission_finished ON submission (finished_ms, id) WHERE finished_ms > 0;
CREATE INDEX submission_logged ON submission (finished_ms, id) WHERE log_hash IS NOT NULL;
CREATE INDEX submission_source ON submission (source_hash);
CREATE INDEX submission_log ON submission (log_hash) WHERE log_hash IS NOT NULL;
CREATE INDEX task_reference ON task (reference_hash);
CREATE INDEX idempotency_id ON idempotency (id);
-- Sums of verdicts, so that no question about a month reads a month of rows. They are kept by the
-- writer with each verdict (sums.c). A scope is "" for all clients, or '=' and a client's name; in the
-- sums by run it is that of the submission's own client, "" where it has none, and what is asked for
-- of all clients is added up. A leader is a submission of class ok; a record is one that was faster
-- than all before it for its task and scope. bin_0 to bin_8 count speed-ups by size (rows.c).
CREATE TABLE trend (
  span_s INTEGER NOT NULL,
  scope TEXT NOT NULL,
  start_s INTEGER NOT NULL,
  class TEXT NOT NULL,
  failed_at TEXT NOT NULL,
  passed TEXT NOT NULL,
  reward_bin INTEGER NOT NULL,
  n INTEGER NOT NULL,
  reward_sum REAL NOT NULL,
  wait_ms INTEGER NOT NULL DEFAULT 0, -- how long verdicts waited, and held devices
  device_ms INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (span_s, scope, start_s, class, failed_at, passed, reward_bin)
) WITHOUT ROWID;
CREATE TABLE failure (
  scope TEXT NOT NULL,
  start_s INTEGER NOT NULL,
  run TEXT NOT NULL, -- "": none
  task_id TEXT NOT NULL,
  class TEXT NOT NULL,
  failed_at TEXT NOT NULL,
  message TEXT NOT NULL,
  n INTEGER NOT NULL,
  first_ms INTEGER NOT NULL,
  last_ms INTEGER NOT NULL,
  last_id TEXT NOT NULL,
  PRIMARY KEY (scope, start_s, run, task_id, class, failed_at, message)
) WITHOUT ROWID;
CREATE INDEX failure_oldest ON failure (start_s);
CREATE TABLE task_sum (
  scope TEXT NOT NULL,
  task_id TEXT NOT NULL,
  n INTEGER NOT NULL,
  ok INTEGER NOT NULL,
  cheats INTEGER NOT NULL,
  reward REAL,
  speedup REAL,
  last_ms INTEGER NOT NULL,
  PRIMARY KEY (scope, task_id)
) WITHOUT ROWID;
CREATE INDEX task_sum_last ON task_sum (scope, last_ms, task_id);
CREATE TABLE leader (
  id TEXT NOT NULL PRIMARY KEY,
  task_id TEXT NOT NULL,
  client TEXT,
  speedup REAL,
  speedup_lo REAL,
  speedup_hi REAL,
  candidate_ms REAL,
  reference_ms REAL,
  reward REAL,
  gpu TEXT,
  finished_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX leader_task ON leader (task_id, speedup, reward, id);
CREATE INDEX leader_task_client ON leader (task_id, client, speedup, reward, id);
CREATE TABLE record (
  scope TEXT NOT NULL,
  task_id TEXT NOT NULL,
  finished_ms INTEGER NOT NULL,
  id TEXT NOT NULL,
  speedup REAL NOT NULL,
  PRIMARY KEY (scope, task_id, finished_ms, id)
) WITHOUT ROWID;
CREATE INDEX record_id ON record (id);
CREATE TABLE run_sum (run TEXT NOT NULL, scope TEXT NOT NULL,
  n INTEGER NOT NULL, infra INTEGER NOT NULL, ok INTEGER NOT NULL,
  cheats INTEGER NOT NULL, rewarded INTEGER NOT NULL, reward_sum REAL NOT NULL,
  speedup REAL, bin_0 INTEGER NOT NULL, bin_1 INTEGER NOT NULL,
  bin_2 INTEGER NOT NULL, bin_3 INTEGER NOT NULL, bin_4 INTEGER NOT NULL,
  bin_5 INTEGER NOT NULL, bin_6 INTEGER NOT NULL, bin_7 INTEGER NOT NULL,
  bin_8 INTEGER NOT NULL,
  first_step INTEGER, last_step INTEGER, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL,
  PRIMARY KEY (run, scope)
) WITHOUT ROWID;
CREATE TABLE run_step (run TEXT NOT NULL, step INTEGER NOT NULL, task_id TEXT NOT NULL,
  scope TEXT NOT NULL,
  n INTEGER NOT NULL, infra INTEGER NOT NULL, ok INTEGER NOT NULL,
  cheats INTEGER NOT NULL, rewarded INTEGER NOT NULL, reward_sum REAL NOT NULL,
  speedup REAL, bin_0 INTEGER NOT NULL, bin_1 INTEGER NOT NULL,
  bin_2 INTEGER NOT NULL, bin_3 INTEGER NOT NULL, bin_4 INTEGER NOT NULL,
  bin_5 INTEGER NOT NULL, bin_6 INTEGER NOT NULL, bin_7 INTEGER NOT NULL,
  bin_8 INTEGER NOT NULL,
  PRIMARY KEY (run, step, task_id, scope)
) WITHOUT ROWID;
-- What is counted of a task goes with it; what was judged stays.
CREATE TRIGGER task_added AFTER INSERT ON task BEGIN
  UPDATE tally SET n = n + 1 WHERE what = 100;
END;
CREATE TRIGGER task_removed AFTER DELETE ON task BEGIN
  UPDATE tally SET n = n - 1 WHERE what = 100;
END;
CREATE TRIGGER task_uncounted AFTER DELETE ON task BEGIN
  DELETE FROM task_sum WHERE task_id = old.id;
  DELETE FROM leader WHERE task_id = old.id;
  DELETE FROM record WHERE task_id = old.id;
  DELETE FROM blob WHERE hash = old.reference_hash
    AND NOT EXISTS (SELECT 1 FROM submission WHERE source_hash = old.reference_hash)
    AND NOT EXISTS (SELECT 1 FROM submission WHERE log_hash = old.reference_hash)
    AND NOT EXISTS (SELECT 1 FROM task WHERE reference_hash = old.reference_hash);
END;
CREATE TRIGGER submission_added AFTER INSERT ON submission BEGIN
  UPDATE tally SET n = n + 1 WHERE what = new.state;
END;
CREATE TRIGGER submission_moved AFTER UPDATE OF state ON submission WHEN old.state <> new.state BEGIN
  UPDATE tally SET n = n - 1 WHERE what = old.state;
  UPDATE tally SET n = n + 1 WHERE what = new.state;
END;
CREATE TRIGGER submission_removed AFTER DELETE ON submission BEGIN
  UPDATE tally SET n = n - 1 WHERE what = old.state;
END;
CREATE TRIGGER leader_removed AFTER DELETE ON submission BEGIN
  DELETE FROM leader WHERE id = old.id;
END;
