-- What a node tells the others of itself.
ALTER TABLE node ADD draining bool NOT NULL DEFAULT false, ADD about text;
