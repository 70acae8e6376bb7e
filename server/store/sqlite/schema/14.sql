-- Of models, that sources were found in.
CREATE TABLE answer (
  id TEXT NOT NULL PRIMARY KEY,
  size INTEGER NOT NULL,
  data BLOB NOT NULL
);
CREATE TRIGGER answer_removed AFTER DELETE ON submission BEGIN
  DELETE FROM answer WHERE id = old.id;
END;
