package records

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Point is one recorded value of a metric.
type Point struct {
	Name  string
	Step  int64
	Rank  int
	Value float64 // NaN, infinities and -0.0 keep their bits
	Exact bool    // false: a timing, ignored when runs are compared
	Time  time.Time
}

// MarshalJSON gives the form of `drun metrics --json`.
func (p Point) MarshalJSON() ([]byte, error) {
	return Marshal(struct {
		Name  string    `json:"name"`
		Step  int64     `json:"step"`
		Rank  int       `json:"rank"`
		Value Float     `json:"value"`
		Time  time.Time `json:"time"`
	}{p.Name, p.Step, p.Rank, Float(p.Value), p.Time})
}

// RankPlace is where a rank ran and with what it computed.
type RankPlace struct {
	Rank      int    `json:"rank"`
	Node      int    `json:"node"`
	LocalRank int    `json:"local_rank"`
	Host      string `json:"host"`
	Threads   int    `json:"threads"`
	Kernels   string `json:"kernels"` // amx, avx512bf16, avx512, avx2, neon or scalar
}

// DataFile is a file that the recipe read. A file that changed in between, or differs between nodes, has an entry
// for each content.
type DataFile struct {
	Path   string `json:"path"` // beneath the recipe's folder; absolute in a --data folder
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// Modified is when it was last changed before it was read; nil: unknown.
	Modified *time.Time `json:"modified"`
	Position string     `json:"position" db:",null"` // of the recipe's call that read it first; "": unknown
}

// Plugin is a program that a run used beside drun.
type Plugin struct {
	Name    string `json:"name"`
	Version string `json:"version"` // "" until the plugin has started
	Path    string `json:"path"`
	SHA256  string `json:"sha256"`
}

// Usage is what a rank has used of its machine's resources since its attempt began.
type Usage struct {
	Attempt     int       `json:"attempt"`
	Rank        int       `json:"rank"`
	Time        time.Time `json:"time" db:",micro"`
	CPU         float64   `json:"cpu"`                 // seconds, of all threads
	Resident    int64     `json:"resident" db:",null"` // bytes of memory at that moment; 0: unknown, as at the end
	Peak        int64     `json:"peak"`                // the maximum of Resident so far, in bytes
	Collectives float64   `json:"collectives"`         // seconds in calls of dist that took more than a moment
	Waiting     float64   `json:"waiting"`             // seconds of these in which the rank slept until others came
}

// Artifact is something that a run has kept, unique by kind, name and step. Bytes, texts and tensors, which
// run.artifact keeps, count as one kind.
type Artifact struct {
	Name   string    `json:"name"`
	Step   *int64    `json:"step"` // nil: none
	Rank   int       `json:"rank"`
	Kind   string    `json:"kind"` // bytes, text, tensor, image, histogram, table
	Bytes  int64     `json:"bytes"`
	SHA256 string    `json:"sha256"`
	Time   time.Time `json:"time"`
	Data   []byte    `json:"-" cbor:"data"` // only set to write; Content reads it
}

// Note is a remark about a run.
type Note struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Source is a file of a recipe, read once for all ranks and for the history.
type Source struct {
	Path    string `json:"path"` // beneath the recipe's folder, with slashes
	SHA256  string `json:"sha256"`
	Role    string `json:"role"` // "recipe" or "load"
	Content []byte `json:"-" cbor:"content"`
}

// NewSource makes a source of a file's content.
func NewSource(path, role string, content []byte) Source {
	sum := sha256.Sum256(content)
	return Source{path, hex.EncodeToString(sum[:]), role, content}
}
