-- To which run and step it belongs (labels.h), and sums by them, which begin with this version. A scope
-- is here that of the submission's own client, "" where it has none; what is asked for of all clients
-- is added up. bin_0 to bin_8 count speed-ups by size (rows.c). pg_temp.metadata() goes with the
-- connection; NULL: the request is no JSON.
CREATE FUNCTION pg_temp.metadata(request text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
  RETURN request::jsonb -> 'metadata'; EXCEPTION WHEN OTHERS THEN RETURN NULL;
END $$;
ALTER TABLE submission ADD COLUMN IF NOT EXISTS run text COLLATE "C",
  ADD COLUMN IF NOT EXISTS step bigint;
ALTER TABLE submission_group ADD COLUMN IF NOT EXISTS run text COLLATE "C",
  ADD COLUMN IF NOT EXISTS step bigint;
CREATE TABLE IF NOT EXISTS run_sum (
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
CREATE TABLE IF NOT EXISTS run_step (
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
