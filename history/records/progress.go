package records

import "time"

// Progress is how far a loop of a running run has got.
type Progress struct {
	Label    string    `json:"label"`
	Current  int64     `json:"current"`
	Total    int64     `json:"total"` // -1: unknown
	Began    time.Time `json:"began" db:",micro"`
	Time     time.Time `json:"time" db:",micro"`
	Finished bool      `json:"-" cbor:"finished"` // the loop has ended: not stored
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
