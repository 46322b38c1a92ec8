-- Tells this catalog from others, and its later states from its earlier ones.
-- Packs note both, so that none is taken for garbage by a catalog that is not
-- theirs or that is older than they are.
CREATE TABLE catalog (
  id         INTEGER PRIMARY KEY CHECK (id = 1),
  store      TEXT NOT NULL,                      -- random
  generation INTEGER NOT NULL                    -- commits so far
);
INSERT INTO catalog VALUES (1, lower(hex(randomblob(16))), 0);
