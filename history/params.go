package history

import (
	"database/sql"
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

// paramColumns are the columns of a parameter.
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
func (p Param) MarshalCBOR() ([]byte, error) {
	columns, err := encodeParams([]Param{p})
	if err != nil {
		return nil, err
	}
	return spoolEncoder.Marshal(columns[0])
}

// UnmarshalCBOR reads what MarshalCBOR gives.
func (p *Param) UnmarshalCBOR(data []byte) (err error) {
	var c paramColumns
	if err := spoolDecoder.Unmarshal(data, &c); err != nil {
		return err
	}
	p.Name = c.Name
	p.Value, err = decodeParam(c.Kind, c.Text)
	return err
}

func (r *Run) putParams(tx *sql.Tx, b *Batch) error {
	params, err := encodeParams(b.Params)
	if err != nil {
		return err
	}
	return insertAll(tx, "REPLACE", "params", params, "run, ", r.ID)
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
