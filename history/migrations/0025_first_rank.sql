-- The rank whose values first and last are: the lowest that recorded the metric. NULL: an older drun recorded it, and took the order of
-- recording.
ALTER TABLE run_metrics ADD COLUMN rank INTEGER;
