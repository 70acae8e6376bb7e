-- What is to be cancelled, whoever has it; and groups that one node at a time judges: its name is
-- their home.
ALTER TABLE job ADD cancel smallint NOT NULL DEFAULT 0, ADD together text COLLATE "C";
CREATE INDEX job_cancel ON job (id) WHERE cancel > 0;
ALTER TABLE submission_group ADD home text COLLATE "C", ADD made_ms bigint;
ALTER TABLE submission_group ALTER made_ms SET DEFAULT verifierd.now_ms();
