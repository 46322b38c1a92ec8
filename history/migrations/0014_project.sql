-- Where the recipe's folder lies beneath the root of its project, from which files may be loaded.
ALTER TABLE runs ADD COLUMN project TEXT;
