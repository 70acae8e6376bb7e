-- Which life of its home a group has, whoever writes the name: one that ended is nobody's home.
ALTER TABLE submission_group ADD home_epoch bigint;
CREATE FUNCTION note_home() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  new.home_epoch := (SELECT epoch FROM verifierd.node WHERE name = new.home);
  RETURN new;
END $$;
CREATE TRIGGER group_home BEFORE UPDATE OF home ON submission_group FOR EACH ROW
  EXECUTE FUNCTION note_home();
-- And for the groups that have one:
UPDATE submission_group SET home = home WHERE home IS NOT NULL
  AND id IN (SELECT together FROM job WHERE together IS NOT NULL);
