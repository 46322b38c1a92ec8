package history

import (
	"database/sql"
	"time"
)

// Progress is how far a loop of a running run has got.
type Progress struct {
	Label   string    `json:"label"`
	Current int64     `json:"current"`
	Total   int64     `json:"total"` // -1: unknown
	Began   time.Time `json:"began"`
	Time    time.Time `json:"time"`
}

// Rate is in items per second; 0: not known yet.
func (p *Progress) Rate() float64 {
	if took := p.Time.Sub(p.Began).Seconds(); took > 0 {
		return float64(p.Current) / took
	}
	return 0
}

// Left is how many seconds are left, if known.
func (p *Progress) Left() (seconds float64, known bool) {
	rate := p.Rate()
	if p.Total < 0 || rate == 0 {
		return 0, false
	}
	return float64(max(0, p.Total-p.Current)) / rate, true
}

func (r *Run) putProgress(tx *sql.Tx, b *Batch) error {
	p := b.Progress
	if p == nil {
		return nil
	}
	_, err := tx.Exec("INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?, ?, ?)", r.ID, p.Label, p.Current, p.Total, p.Began.UnixMicro(), p.Time.UnixMicro())
	return err
}

// Progress is the progress of a running run; nil: none was reported.
func (db *DB) Progress(run int64) (*Progress, error) {
	var found *Progress
	err := db.read(func(rows *sql.Rows) error {
		var began, at int64
		p := &Progress{}
		err := rows.Scan(&p.Label, &p.Current, &p.Total, &began, &at)
		p.Began, p.Time, found = time.UnixMicro(began).UTC(), time.UnixMicro(at).UTC(), p
		return err
	}, "SELECT label, current, total, began, time FROM progress WHERE run = ?", run)
	return found, err
}
