-- What a sweep removes is counted once for each statement, and their leaders go with them.
DROP TRIGGER submission_removed ON submission;
CREATE FUNCTION count_removed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM verifierd.count_one(state, (-count(*))::int) FROM gone WHERE state >= 2 GROUP BY state;
  DELETE FROM verifierd.leader WHERE id = ANY (ARRAY(SELECT id FROM gone));
  RETURN NULL;
END $$;
CREATE TRIGGER submission_removed AFTER DELETE ON submission REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION count_removed();
