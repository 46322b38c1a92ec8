package records

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

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

// MarshalJSON gives the form that Float describes.
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
