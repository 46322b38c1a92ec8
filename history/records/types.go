// Package records holds what a run records: one type for each thing, used all the way from the rank to the history.
//
// A field's name in JSON is also its column in the history, unless its db tag has another, or "-" for none. After a
// comma, the tag says how it is stored: micro (a time as microseconds since 1970 instead of text), null (the zero
// value as NULL) or json (as JSON).
package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
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
	Node     *int       `json:"node"`                // on which it was read first; nil: unknown
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

	// Of all processes of the machine, in samples of the first rank of each node; otherwise 0.
	MachineCPU      float64 `json:"machine_cpu" db:",null"`      // seconds, of all cores
	MachineMemory   int64   `json:"machine_memory" db:",null"`   // bytes in use at that moment
	MachineSent     int64   `json:"machine_sent" db:",null"`     // bytes to other machines
	MachineReceived int64   `json:"machine_received" db:",null"` // bytes from other machines
}

// Copies are what a call of the recipe copied between a rank's memory and its device: because the processor computed it, or read or
// made its elements.
type Copies struct {
	Attempt         int    `json:"attempt"`
	Rank            int    `json:"rank"`
	Position        string `json:"position"` // of the call in the recipe
	Call            string `json:"call"`
	Uploads         int    `json:"uploads"`
	UploadedBytes   int    `json:"uploaded_bytes"`
	Downloads       int    `json:"downloads"`
	DownloadedBytes int    `json:"downloaded_bytes"`
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
	Data   []byte    `json:"-" cbor:"data"` // set only for writing; Content reads it
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

// Snapshot is what every rank was doing when the run failed, or when a signal asked for it.
type Snapshot struct {
	Time   time.Time   `json:"time"`
	Reason string      `json:"reason"` // the run's status, or the signal that asked
	Ranks  []RankState `json:"ranks" db:"-"`
}

// RankState is one rank of a snapshot.
type RankState struct {
	Rank     int        `json:"rank"`
	State    string     `json:"state"`
	Call     string     `json:"call"`          // the call that it was in or had made last; "": none
	Number   uint64     `json:"number"`        // of the call among its group's collectives, from 1; 0: point to point, or none
	Group    uint32     `json:"group"`         // 0: all ranks
	Position string     `json:"position"`      // in the recipe; "" if unknown
	Seconds  float64    `json:"seconds"`       // for how long it had been doing so
	Recent   []PastCall `json:"recent" db:"-"` // its latest calls, newest first
}

// PastCall is a call that a rank made.
type PastCall struct {
	Call     string   `json:"call"`
	Number   uint64   `json:"number"`
	Group    uint32   `json:"group"`
	Position string   `json:"position"`
	Ago      float64  `json:"ago"`     // seconds from its start to the snapshot
	Seconds  *float64 `json:"seconds"` // how long it took; nil: it had not ended, or had not been waited for
	Async    bool     `json:"async"`
}

// DigestSize is the size of a digest of the parameters in bytes.
const DigestSize = 8

// Updates are digests of a rank's parameters after each of several consecutive updates.
type Updates struct {
	Attempt int    `json:"attempt"`
	Rank    int    `json:"rank"`
	First   int64  `json:"first"`   // number of the first update, from 1
	Digests []byte `json:"digests"` // DigestSize bytes each
}

// Mark says how many updates rank 0 had made when it saved or recorded a step, for Count points at equal distances.
type Mark struct {
	Attempt   int    `json:"attempt"`
	Seq       int    `json:"seq"`
	Name      string `json:"name"` // of the metric; "": checkpoint.save
	Step      int64  `json:"step"`
	Updates   int64  `json:"updates"`
	StepBy    int64  `db:"step_by"`
	UpdatesBy int64  `db:"updates_by"`
	Count     int64  `json:"count"`
}

// At returns the number of updates at a step, if the step is among the points.
func (m Mark) At(step int64) (updates int64, is bool) {
	n := int64(0) // index of the point
	if m.StepBy != 0 {
		n = (step - m.Step) / m.StepBy
	}
	if n < 0 || n >= m.Count || m.Step+n*m.StepBy != step {
		return 0, false
	}
	if m.StepBy == 0 {
		n = m.Count - 1 // the latest of the points, which all have this step
	}
	return m.Updates + n*m.UpdatesBy, true
}

// Marshal is json.Marshal that leaves <, > and & readable.
func Marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// Float is a number whose JSON form keeps its bits: the shortest number that reads back the same; NaN and
// infinities, which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity".
type Float float64

func (f Float) MarshalJSON() ([]byte, error) {
	v := float64(f)
	switch {
	case math.IsNaN(v):
		return []byte(`"NaN"`), nil
	case math.IsInf(v, 0):
		if v > 0 {
			return []byte(`"Infinity"`), nil
		}
		return []byte(`"-Infinity"`), nil
	}
	return []byte(strconv.FormatFloat(v, 'g', -1, 64)), nil
}

// String is the JSON form without quotes.
func (f Float) String() string {
	text, _ := f.MarshalJSON()
	return strings.Trim(string(text), `"`)
}

// Batch is what a rank records, a list for each kind. The rank fills it in, SetRank says whose it is, and
// history.Run.Write stores it. Kinds that are rows of one table name it in the table tag, and in the or tag what
// happens to a row that is there.
//
// The methods treat all fields alike, so a new kind needs nothing but its field.
type Batch struct {
	Ranks     []RankPlace `cbor:",omitempty" table:"ranks" or:"REPLACE"`
	Plugins   []Plugin    `cbor:",omitempty" table:"plugins" or:"REPLACE"`
	Usage     []Usage     `cbor:",omitempty" table:"rank_usage" or:"REPLACE"`
	Copies    []Copies    `cbor:",omitempty" table:"device_copies" or:"REPLACE"`
	DataFiles []DataFile  `cbor:",omitempty" table:"data_files" or:"IGNORE"`
	Tags      []string    `cbor:",omitempty" table:"tags" or:"IGNORE" db:"tag"`
	Notes     []Note      `cbor:",omitempty" table:"notes"`
	Artifacts []Artifact  `cbor:",omitempty"`
	Points    []Point     `cbor:",omitempty"`
	Updates   []Updates   `cbor:",omitempty" table:"updates" or:"REPLACE"`
	Marks     []Mark      `cbor:",omitempty" table:"step_marks" or:"REPLACE"`
}

// SetRank sets the rank and its attempt in all records that have them.
func (b *Batch) SetRank(rank, attempt int) {
	v := reflect.ValueOf(b).Elem()
	for i := range v.NumField() {
		list := v.Field(i)
		if list.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		for name, n := range map[string]int{"Rank": rank, "Attempt": attempt} {
			if f, is := list.Type().Elem().FieldByName(name); is {
				for k := range list.Len() {
					list.Index(k).FieldByIndex(f.Index).SetInt(int64(n))
				}
			}
		}
	}
}

func (b *Batch) Append(o *Batch) {
	to, from := reflect.ValueOf(b).Elem(), reflect.ValueOf(o).Elem()
	for i := range to.NumField() {
		to.Field(i).Set(reflect.AppendSlice(to.Field(i), from.Field(i)))
	}
}

// Size is the number of records, and the bytes of their texts and data.
func (b *Batch) Size() (n, bytes int) {
	v := reflect.ValueOf(b).Elem()
	for i := range v.NumField() {
		list := v.Field(i)
		n += list.Len()
		for k := range list.Len() {
			bytes += text(list.Index(k))
		}
	}
	return n, bytes
}

// text is how many bytes of text and data a record holds.
func text(v reflect.Value) (bytes int) {
	switch v.Kind() {
	case reflect.String, reflect.Slice:
		return v.Len()
	case reflect.Struct:
		for i := range v.NumField() {
			bytes += text(v.Field(i))
		}
	}
	return bytes
}

// Given is what a run was started with, as its row in the table runs has it: flags of drun run, and what is like them.
type Given struct {
	Command []string `json:"command" db:",json"` // as the user typed it
	Version string   `json:"version"`            // of drun
}

// Sweep is a set of runs with different parameters.
type Sweep struct {
	Name    string   `json:"name"`
	Cells   int      `json:"cells"`   // how many runs it has, when all have run
	Command []string `json:"command"` // as the user typed it: it goes on with the same
}
