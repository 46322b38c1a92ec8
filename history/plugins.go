package history

import "drun/history/records"

// AddPlugin records a plugin of the run, or its version once that is known.
func (r *Run) AddPlugin(p records.Plugin) error {
	return r.Write(&Batch{Batch: records.Batch{Plugins: []records.Plugin{p}}})
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
