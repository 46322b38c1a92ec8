-- What all processes of a node's machine used, with the samples of its first rank.
ALTER TABLE rank_usage ADD COLUMN machine_cpu REAL;
ALTER TABLE rank_usage ADD COLUMN machine_memory INTEGER;
ALTER TABLE rank_usage ADD COLUMN machine_sent INTEGER;
ALTER TABLE rank_usage ADD COLUMN machine_received INTEGER;
