-- The node on which a content of a data file was read first.
ALTER TABLE data_files ADD COLUMN node INTEGER;
