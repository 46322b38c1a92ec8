package history

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"drun/history/records"
	"drun/internal/sqldb"
	"drun/internal/try"
)

// Param is a parameter of a run. Value is nil, bool, int, int64, *big.Int, float64, string, List or Secret; when
// read back, whole numbers are int64, or *big.Int if they do not fit.
type Param struct {
	Name  string
	Value any
}

// Secret stands for a value that is not kept.
type Secret struct{}

// List is a list as JSON without spaces. Floats have a point or an exponent, whole numbers have none: [64,0.5,"a"].
type List string

// Elements are the values of the list: nil, bool, json.Number, string or []any of these; nil if the list is not
// valid JSON.
func (l List) Elements() []any {
	decoder := json.NewDecoder(strings.NewReader(string(l)))
	decoder.UseNumber()
	var list []any
	if err := decoder.Decode(&list); err != nil {
		return nil
	}
	return list
}

var constants = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`"(?:[^"\\]|\\.)*"|True|False|None`) })

// Same reports whether a text given for -p, as JSON or Starlark, is this list.
func (l List) Same(text string) bool {
	given := List(constants().ReplaceAllStringFunc(text, func(word string) string {
		if json := map[string]string{"True": "true", "False": "false", "None": "null"}[word]; json != "" {
			return json
		}
		return word
	})).Elements()
	return given != nil && sameElements(l.Elements(), given)
}

func sameElements(a, b any) bool {
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameElements)
	case json.Number:
		b, ok := b.(json.Number)
		x, okX := new(big.Rat).SetString(a.String())
		y, okY := new(big.Rat).SetString(b.String())
		return ok && okX && okY && x.Cmp(y) == 0
	}
	return a == b
}

type paramColumns struct {
	Name string `db:"name"`
	Kind string `db:"type"`
	Text string `db:"value"`
}

func encodeParams(params []Param) (list []paramColumns, err error) {
	for _, p := range params {
		kind, text, err := encodeParam(p.Value)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", p.Name, err)
		}
		list = append(list, paramColumns{p.Name, kind, text})
	}
	return list, nil
}

// MarshalCBOR gives the columns of a parameter.
func (p Param) MarshalCBOR() (_ []byte, err error) {
	defer try.Caught(&err)
	columns := try.To(encodeParams([]Param{p}))
	return spoolEncoder.Marshal(columns[0])
}

func (p *Param) UnmarshalCBOR(data []byte) (err error) {
	defer try.Caught(&err)
	var c paramColumns
	try.Ok(spoolDecoder.Unmarshal(data, &c))
	p.Name = c.Name
	p.Value, err = decodeParam(c.Kind, c.Text)
	return err
}

func (r *Run) putParams(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	params := try.To(encodeParams(b.Params))
	return insertAll(tx, "REPLACE", "params", params, "run, ", r.ID)
}

func paramsIn(in sqldb.Queryer, run int64) (list []Param, err error) {
	err = sqldb.Each(in, func(rows *sql.Rows) error {
		var p Param
		var kind, text string
		err := rows.Scan(&p.Name, &kind, &text)
		if err == nil {
			p.Value, err = decodeParam(kind, text)
		}
		list = append(list, p)
		return err
	}, "SELECT name, type, value FROM params WHERE run = ? ORDER BY name", run)
	return list, err
}

func encodeParam(v any) (kind, text string, err error) {
	switch v := v.(type) {
	case nil:
		return "none", "null", nil
	case bool:
		return "bool", strconv.FormatBool(v), nil
	case int:
		return "int", strconv.Itoa(v), nil
	case int64:
		return "int", strconv.FormatInt(v, 10), nil
	case *big.Int:
		return "int", v.String(), nil
	case float64:
		text, err := json.Marshal(records.Float(v))
		if err == nil && !strings.ContainsAny(string(text), ".eN\"") {
			text = append(text, ".0"...) // a float stays a float: 1.0, not 1
		}
		return "float", string(text), err
	case string:
		if !utf8.ValidString(v) { // JSON has no such strings
			text, err := records.Marshal([]byte(v))
			return "bytes", string(text), err
		}
		text, err := records.Marshal(v)
		return "string", string(text), err
	case List:
		return "list", string(v), nil
	case Secret:
		return "secret", `"[redacted]"`, nil
	}
	return "", "", fmt.Errorf("a %T cannot be recorded", v)
}

func decodeParam(kind, text string) (any, error) {
	switch kind {
	case "none":
		return nil, nil
	case "bool":
		return strconv.ParseBool(text)
	case "int":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		if n, ok := new(big.Int).SetString(text, 10); ok {
			return n, nil
		}
	case "float":
		return strconv.ParseFloat(strings.Trim(text, `"`), 64)
	case "secret":
		return Secret{}, nil
	case "bytes":
		var b []byte
		err := json.Unmarshal([]byte(text), &b)
		return string(b), err
	case "string":
		var s string
		err := json.Unmarshal([]byte(text), &s)
		return s, err
	case "list":
		if List(text).Elements() != nil {
			return List(text), nil
		}
	}
	return nil, fmt.Errorf("parameter of type %q has the unreadable value %s", kind, text)
}

// Inputs are what decides the bits of a run, except the data that it reads.
type Inputs struct {
	Main      string           // the recipe's path beneath its folder
	Sources   []records.Source // the recipe and the files it loads
	Params    []Param          // as declared, with their values
	Seed      int64
	WorldSize int
	Order     string // order of reductions: "ranks", or the backend that decides
	Numerics  int    // version of drun's arithmetic
	Parent    string // uid and step of the checkpoint that the run was resumed from; "": none
}

// Key is the SHA-256 of the inputs; "" if a parameter is a secret, whose value is not kept.
func (in *Inputs) Key() (_ string, err error) {
	defer try.Caught(&err)
	params := try.To(encodeParams(in.Params))
	for _, p := range params {
		if p.Kind == "secret" {
			return "", nil
		}
	}
	slices.SortFunc(params, func(a, b paramColumns) int { return strings.Compare(a.Name, b.Name) })
	sources := slices.Clone(in.Sources)
	for i := range sources {
		sources[i].Role = "" // keys have never had it
	}
	slices.SortFunc(sources, func(a, b records.Source) int { return strings.Compare(a.Path, b.Path) })
	return digest(in.Main, sources, params, in.Seed, in.WorldSize, in.Order, in.Numerics, in.Parent)
}

func bitsKey(inputs string, files []records.DataFile) (string, error) {
	parts := []any{inputs}
	slices.SortFunc(files, func(a, b records.DataFile) int {
		return strings.Compare(a.Path+"\x00"+a.SHA256, b.Path+"\x00"+b.SHA256)
	})
	for _, f := range files {
		parts = append(parts, f.Path, f.SHA256)
	}
	return digest(parts...)
}

func digest(parts ...any) (string, error) {
	text, err := json.Marshal(parts)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// Git is the state of the repository that a recipe is in.
type Git struct {
	Commit string `json:"commit"`
	Dirty  bool   `json:"dirty"` // files in the recipe's folder differ from the commit
}

func (r *Run) putKeys(tx *sql.Tx, b *Batch) (err error) {
	defer try.Caught(&err)
	if b.Inputs != nil {
		// A run that was continued with another recipe or other parameters has no key.
		try.To(tx.Exec("UPDATE runs SET inputs = CASE WHEN ?1 = '' OR inputs <> ?1 THEN '' ELSE ?1 END WHERE id = ?2", *b.Inputs, r.ID))
	}
	if b.WorldSize != 0 {
		try.To(tx.Exec("UPDATE runs SET world_size = ? WHERE id = ?", b.WorldSize, r.ID))
	}
	if b.Git != nil {
		try.To(tx.Exec("UPDATE runs SET git_commit = ?, git_dirty = ? WHERE id = ?", b.Git.Commit, b.Git.Dirty, r.ID))
	}
	if b.End == nil {
		return nil
	}
	var inputs, folders sql.NullString
	try.Ok(tx.QueryRow("SELECT inputs, data_dirs FROM runs WHERE id = ?", r.ID).Scan(&inputs, &folders))
	var dirs []string
	if folders.Valid {
		try.Ok(json.Unmarshal([]byte(folders.String), &dirs))
	}
	key := any(nil)
	if inputs.String != "" {
		var files []records.DataFile
		try.Ok(sqldb.Each(tx, func(rows *sql.Rows) error {
			var f records.DataFile
			err := rows.Scan(&f.Path, &f.SHA256)
			for _, dir := range dirs { // wherever the folder was
				f.Path = strings.TrimPrefix(f.Path, strings.TrimSuffix(dir, "/")+"/")
			}
			files = append(files, f)
			return err
		}, "SELECT path, sha256 FROM data_files WHERE run = ? ORDER BY path, sha256", r.ID))
		key = try.To(bitsKey(inputs.String, files))
	}
	_, err = tx.Exec("UPDATE runs SET bits_key = ? WHERE id = ?", key, r.ID)
	return err
}

// WithInputs lists the runs with this status (interrupted: or stopped early) whose inputs had this key, newest first. DataFiles tells whether their
// data is the same.
func (db *DB) WithInputs(key string, status Status) ([]Summary, error) {
	if key == "" {
		return []Summary{}, nil
	}
	return db.summaries(&fully, "WHERE inputs = ?1 AND (status = ?2 OR ?2 = 'interrupted' AND status = 'stopped early') AND trashed IS NULL ORDER BY id DESC", key, status)
}
