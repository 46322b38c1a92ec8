package history

import "database/sql"

// Plugin is a program that a run used besides drun.
type Plugin struct {
	Name    string `json:"name"`
	Version string `json:"version"` // "" until the plugin has started
	Path    string `json:"path"`
	SHA256  string `json:"sha256"`
}

// AddPlugin records a plugin of the run, or its version once that is known.
func (r *Run) AddPlugin(p Plugin) error {
	return r.Write(&Batch{Plugins: []Plugin{p}})
}

func (r *Run) putPlugins(tx *sql.Tx, b *Batch) error {
	for _, p := range b.Plugins {
		if _, err := tx.Exec("INSERT OR REPLACE INTO plugins (run, name, version, path, sha256) VALUES (?, ?, ?, ?, ?)",
			r.ID, p.Name, p.Version, p.Path, p.SHA256); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) plugins(run int64) (list []Plugin, err error) {
	list = []Plugin{}
	err = db.read(func(rows *sql.Rows) error {
		var p Plugin
		err := rows.Scan(&p.Name, &p.Version, &p.Path, &p.SHA256)
		list = append(list, p)
		return err
	}, "SELECT name, version, path, sha256 FROM plugins WHERE run = ? ORDER BY name", run)
	return list, err
}
