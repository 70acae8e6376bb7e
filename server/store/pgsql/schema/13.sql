-- What is identical runs on one node, and of a client no more than may (claims.c). What a node of the
-- version before adds runs beside what is identical, and it claims what it likes.
ALTER TABLE job ADD COLUMN IF NOT EXISTS content bigint;
CREATE OR REPLACE FUNCTION is_sole(bigint, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
  IF NOT pg_try_advisory_xact_lock($1) THEN RETURN false; END IF;
  RETURN NOT EXISTS (SELECT FROM verifierd.job WHERE content = $1 AND state = 1 AND node <> $2);
END $$;
CREATE OR REPLACE FUNCTION room(text, bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtextextended($1, 0)) THEN RETURN 0; END IF;
  RETURN $2 - (SELECT count(*) FROM verifierd.job WHERE client = $1 AND state = 1);
END $$;
