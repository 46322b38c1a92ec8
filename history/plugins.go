package history

import (
	"database/sql"

	"drun/history/records"
)

// AddPlugin records a plugin of the run, or its version once that is known.
func (r *Run) AddPlugin(p records.Plugin) error {
	return r.Write(&Batch{Records: records.Records{Plugins: []records.Plugin{p}}})
}

func (r *Run) putPlugins(tx *sql.Tx, b *Batch) error {
	return execute(tx, "INSERT OR REPLACE INTO plugins (run, name, version, path, sha256) VALUES (?, ?, ?, ?, ?)", b.Plugins,
		func(p *records.Plugin) []any { return []any{r.ID, p.Name, p.Version, p.Path, p.SHA256} })
}

// Backends names the run's backend, then those of its groups.
func (d *Detail) Backends() []string {
	names := []string{d.Backend}
	for _, p := range d.Plugins {
		if p.Name != d.Backend {
			names = append(names, p.Name)
		}
	}
	return names
}

func (db *DB) plugins(run int64) ([]records.Plugin, error) {
	return list(db, func(p *records.Plugin) []any { return []any{&p.Name, &p.Version, &p.Path, &p.SHA256} },
		"SELECT name, version, path, sha256 FROM plugins WHERE run = ? ORDER BY name", run)
}
