-- Of models, that sources were found in: they go with their submission, whoever removes it.
CREATE TABLE IF NOT EXISTS answer (
  id text COLLATE "C" PRIMARY KEY REFERENCES submission ON DELETE CASCADE,
  size bigint NOT NULL,
  data bytea NOT NULL
);
ALTER TABLE answer ALTER data SET STORAGE EXTERNAL; -- it is compressed
