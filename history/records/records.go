// Package records holds what a run records: one type per thing, used all the way from the rank to the history.
package records

// Records is what a rank records. The rank fills it in, Of sets its rank and attempt, and history.Run.Write stores
// it.
type Records struct {
	Ranks     []RankPlace `cbor:",omitempty"`
	Plugins   []Plugin    `cbor:",omitempty"`
	Usage     []Usage     `cbor:",omitempty"`
	DataFiles []DataFile  `cbor:",omitempty"`
	Tags      []string    `cbor:",omitempty"`
	Notes     []Note      `cbor:",omitempty"`
	Artifacts []Artifact  `cbor:",omitempty"`
	Points    []Point     `cbor:",omitempty"`
	Updates   []Updates   `cbor:",omitempty"`
	Marks     []Mark      `cbor:",omitempty"`
}

// Of sets the rank and its attempt in all records.
func (r *Records) Of(rank, attempt int) {
	for i := range r.Ranks {
		r.Ranks[i].Rank = rank
	}
	for i := range r.Usage {
		r.Usage[i].Rank, r.Usage[i].Attempt = rank, attempt
	}
	for i := range r.Artifacts {
		r.Artifacts[i].Rank = rank
	}
	for i := range r.Points {
		r.Points[i].Rank = rank
	}
	for i := range r.Updates {
		r.Updates[i].Rank, r.Updates[i].Attempt = rank, attempt
	}
	for i := range r.Marks {
		r.Marks[i].Attempt = attempt
	}
}

// Append adds the records of o.
func (r *Records) Append(o *Records) {
	r.Ranks = append(r.Ranks, o.Ranks...)
	r.Plugins = append(r.Plugins, o.Plugins...)
	r.Usage = append(r.Usage, o.Usage...)
	r.DataFiles = append(r.DataFiles, o.DataFiles...)
	r.Tags = append(r.Tags, o.Tags...)
	r.Notes = append(r.Notes, o.Notes...)
	r.Artifacts = append(r.Artifacts, o.Artifacts...)
	r.Points = append(r.Points, o.Points...)
	r.Updates = append(r.Updates, o.Updates...)
	r.Marks = append(r.Marks, o.Marks...)
}

// Size is the number of records, and the bytes of their texts and data.
func (r *Records) Size() (n, bytes int) {
	n = len(r.Ranks) + len(r.Plugins) + len(r.Usage) + len(r.DataFiles) + len(r.Tags) + len(r.Notes) + len(r.Artifacts) +
		len(r.Points) + len(r.Updates) + len(r.Marks)
	for _, f := range r.DataFiles {
		bytes += len(f.Path)
	}
	for _, tag := range r.Tags {
		bytes += len(tag)
	}
	for _, note := range r.Notes {
		bytes += len(note.Text)
	}
	for i := range r.Artifacts {
		bytes += len(r.Artifacts[i].Data)
	}
	for i := range r.Points {
		bytes += len(r.Points[i].Name)
	}
	for _, u := range r.Updates {
		bytes += len(u.Digests)
	}
	return n, bytes
}
