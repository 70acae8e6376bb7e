-- The oldest program that can live with this schema, by the version that it knows.
ALTER TABLE meta ADD oldest int NOT NULL DEFAULT 5;
