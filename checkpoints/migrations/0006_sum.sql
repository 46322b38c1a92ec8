-- The XXH3-128 of a chunk's data, by which a load checks it at the speed of memory; where it is NULL or
-- does not fit, by the SHA-256.
ALTER TABLE chunks ADD COLUMN sum BLOB;
