-- The chunks of a small save are in the catalog itself: a file of their own was twice as large as they. So that a
-- checkpoint of many small tensors stays small, sums are bytes and not digits, and tables name chunks by their numbers.
-- What refers to nothing, in a damaged catalog, is left out: loading notices that.
DROP INDEX chunks_pack;
DROP INDEX entry_chunks_sha256;
ALTER TABLE entry_chunks RENAME TO entry_chunks_6;
ALTER TABLE entries RENAME TO entries_6;
ALTER TABLE chunks RENAME TO chunks_6;

CREATE TABLE entries (
  id         INTEGER PRIMARY KEY,
  checkpoint INTEGER NOT NULL REFERENCES checkpoints (id) ON DELETE CASCADE,
  rank       INTEGER NOT NULL,
  name       TEXT NOT NULL,                      -- unique within the rank
  kind       TEXT NOT NULL,                      -- tensor, value, …: the writer's word
  dtype      TEXT NOT NULL,
  shape      TEXT NOT NULL,                      -- JSON array
  bytes      INTEGER NOT NULL,
  digest     BLOB NOT NULL                       -- SHA-256 of all that is said of it; empty: an older drun saved it
);
CREATE INDEX entries_rank ON entries (checkpoint, rank);
INSERT INTO entries SELECT id, checkpoint, rank, name, kind, dtype, shape, bytes, ifnull(unhex(digest), x'00') FROM entries_6
  WHERE checkpoint IN (SELECT id FROM checkpoints);

CREATE TABLE chunks (
  id     INTEGER PRIMARY KEY,
  sha256 BLOB NOT NULL UNIQUE,                   -- of the data
  bytes  INTEGER NOT NULL,
  pack   INTEGER REFERENCES packs (id),          -- NULL: the data is here
  row    INTEGER,                                -- chunks.id in the pack
  sum    BLOB,                                   -- XXH3-128 of the data in the pack; NULL: not known
  data   BLOB                                    -- NULL: it is in the pack
);
CREATE INDEX chunks_pack ON chunks (pack) WHERE pack IS NOT NULL;
INSERT OR IGNORE INTO chunks (sha256, bytes, pack, row, sum) SELECT unhex(sha256), bytes, pack, row, sum FROM chunks_6
  WHERE pack IN (SELECT id FROM packs) ORDER BY pack, row;

-- The data of an entry is that of its chunks one after the other.
CREATE TABLE entry_chunks (
  entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
  n     INTEGER NOT NULL,
  chunk INTEGER NOT NULL REFERENCES chunks (id),
  PRIMARY KEY (entry, n)
) WITHOUT ROWID;
CREATE INDEX entry_chunks_chunk ON entry_chunks (chunk);
INSERT INTO entry_chunks SELECT ec.entry, ec.n, c.id FROM entry_chunks_6 ec JOIN entries e ON e.id = ec.entry
  JOIN chunks c ON c.sha256 = unhex(ec.sha256);

DROP TABLE entry_chunks_6;
DROP TABLE entries_6;
DROP TABLE chunks_6;
