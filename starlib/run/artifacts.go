package run

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"strings"
	"unicode/utf8"

	"drun/history/records"
	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/data"
	startensor "drun/starlib/tensor"
	"drun/tensor"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// Artifacts are kept whole in the history, so they are bounded.
const (
	maxArtifact  = 16 << 20 // bytes
	maxArtifacts = 1 << 30  // bytes of a run
	maxPixels    = 1 << 25
	bins         = 64 // of a histogram
)

// place identifies an artifact of a step: no other may have the same.
type place struct {
	kind, name string
	step       int64
}

// taken says what was kept in a place, and by which call.
type taken struct {
	sum [sha256.Size]byte
	by  syntax.Position
}

func (r *Run) artifacts() []*starlib.Def {
	return []*starlib.Def{
		{Sig: `artifact(name: string, value)`,
			Doc: "Keeps bytes, a string or a tensor (as a .safetensors file, under the name \"tensor\") in the history.\n" +
				"Another of the same name replaces it; names of images, histograms and tables are separate. Only\n" +
				"rank 0 keeps it, whichever ranks call; at most 16 MiB, and 1 GiB in a run. `drun artifacts` lists and saves\n" +
				"what a run has kept; equal contents are stored once.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				a, v := &records.Artifact{Name: c.String("name")}, c.Arg("value")
				return nil, r.keep(c, a, func() error { return take(a, v) })
			}},
		{Sig: `image(name: string, tensor: Tensor, step: int = None)`,
			Doc: "Keeps a picture as PNG, one for each name and step: a tensor of shape (height, width), or (channels,\n" +
				"height, width) with 1, 3 (red, green, blue) or 4 channels (and opacity). uint8 from 0 to 255, or floats from 0 to 1,\n" +
				"clipped to that range. NaN is an error. Another picture of the same name and step is an error, until\n" +
				"checkpoint.restore; without a step the next replaces it. Only rank 0 keeps it.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				t := c.Arg("tensor").(*startensor.Value).Tensor()
				a := try.To(stepped(c, "image"))
				return nil, r.keep(c, a, func() (err error) { a.Data, err = picture(t); return err })
			}},
		{Sig: `histogram(name: string, tensor: Tensor, step: int = None)`,
			Doc: "Keeps the distribution of a tensor's values, one for each name and step: a JSON object with the 65 edges of\n" +
				"64 bins of equal width from the smallest finite value to the largest, their counts, and how many values are nan and inf.\n" +
				"Another of the same name and step is an error, until checkpoint.restore; without a step the next replaces\n" +
				"it. Only rank 0 keeps it.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				t := c.Arg("tensor").(*startensor.Value).Tensor()
				a := try.To(stepped(c, "histogram"))
				return nil, r.keep(c, a, func() (err error) { a.Data, err = histogram(t); return err })
			}},
		{Sig: `table(name: string, rows: iterable)`,
			Doc: "Keeps rows, each a dict or a list, as a JSON object {columns, rows}; another of the same name replaces it. A dict's\n" +
				"keys are its columns. Cells are None, bool, int, float or string. Only rank 0 keeps it.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				a, rows := &records.Artifact{Name: c.String("name"), Kind: "table"}, c.Arg("rows").(starlark.Iterable)
				return nil, r.keep(c, a, func() (err error) { a.Data, err = table(rows); return err })
			}},
	}
}

// stepped makes an artifact that may have a step, still without its data.
func stepped(c *starlib.Call, kind string) (*records.Artifact, error) {
	a := &records.Artifact{Name: c.String("name"), Kind: kind}
	if !c.IsNone("step") {
		step := int64(c.Int("step"))
		if a.Step = &step; step < 0 {
			return nil, fmt.Errorf("step is %d, and must not be negative", step)
		}
	}
	return a, nil
}

// keep records an artifact of rank 0, whose data encode fills in. A second one for a step is an error, unless a
// restored checkpoint makes the recipe repeat its steps.
func (r *Run) keep(c *starlib.Call, a *records.Artifact, encode func() error) (err error) {
	defer try.Caught(&err)
	try.FailIf(a.Name == "", "the name is empty")
	try.Ok(checkName("the name", a.Name))
	if r.rank.Rank != 0 {
		return nil
	}
	try.Ok(encode())
	if len(a.Data) > maxArtifact {
		return tooLarge(len(a.Data))
	}
	if a.Step != nil {
		at, now := place{a.Kind, a.Name, *a.Step}, taken{sha256.Sum256(a.Data), c.Position()}
		if before, is := r.taken[at]; is && before.sum != now.sum {
			return fmt.Errorf("another %s was already kept as %q at step %d, by the call at %v: give each its own name or step", a.Kind, a.Name, *a.Step, before.by)
		}
		r.taken[at] = now
	}
	if r.kept += int64(len(a.Data)); r.kept > maxArtifacts {
		return fmt.Errorf("with this the run's artifacts have %d bytes, more than %d: checkpoint.save_file writes files outside the history", r.kept, maxArtifacts)
	}
	r.recorder.Artifact(*a)
	return nil
}

func tooLarge(bytes int) error {
	return fmt.Errorf("it has %d bytes, more than %d: checkpoint.save_file writes files outside the history", bytes, maxArtifact)
}

func take(a *records.Artifact, v starlark.Value) (err error) {
	defer try.Caught(&err)
	switch v := v.(type) {
	case starlark.Bytes:
		a.Kind, a.Data = "bytes", []byte(v)
	case starlark.String:
		a.Kind, a.Data = "text", []byte(v)
		if !utf8.ValidString(string(v)) {
			a.Kind = "bytes"
		}
	case *startensor.Value:
		if n := v.Tensor().Len() * v.Tensor().DType().Size(); n > maxArtifact {
			return tooLarge(n)
		}
		format := try.To(data.FormatOf("tensor.safetensors"))
		var out bytes.Buffer
		try.Ok(format.Write(&out, []data.Named{{Name: "tensor", Tensor: v.Tensor()}}))
		a.Kind, a.Data = "tensor", out.Bytes()
	default:
		return fmt.Errorf("want bytes, a string or a tensor, not %s", v.Type())
	}
	return nil
}

func floats(t *tensor.Tensor) (_ []float64, err error) {
	defer try.Caught(&err)
	try.FailIf(t.DType() == dtype.Complex64, "the tensor is complex")
	try.FailIf(t.Len() > maxPixels, "the tensor has %d elements, more than %d", t.Len(), maxPixels)
	wide, err := tensor.Cast(t.Detach(), dtype.Float64)
	if err == nil {
		wide, err = tensor.Contiguous(wide)
	}
	if err != nil {
		return nil, err
	}
	raw := wide.Content()
	out := each.UpTo(t.Len(), func(i int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(raw[i*8:])) })
	return out, nil
}

// picture encodes a tensor as PNG.
func picture(t *tensor.Tensor) (_ []byte, err error) {
	defer try.Caught(&err)
	shape := t.Shape()
	channels := 1
	if len(shape) == 3 {
		channels, shape = shape[0], shape[1:]
	}
	if len(shape) != 2 || channels != 1 && channels != 3 && channels != 4 || t.Len() == 0 {
		return nil, fmt.Errorf("the shape is %s: want (height, width), or (channels, height, width) with 1, 3 or 4 channels", tensor.ShapeString(t.Shape()))
	}
	scale := 255.0
	switch {
	case t.DType() == dtype.Uint8:
		scale = 1
	case !t.DType().IsFloat() && t.DType() != dtype.Bool:
		return nil, fmt.Errorf("the dtype is %s: want uint8 from 0 to 255, or floats from 0 to 1", t.DType())
	}
	values := try.To(floats(t))
	height, width := shape[0], shape[1]
	at := func(channel, i int) uint8 {
		return uint8(math.Round(min(max(values[channel*height*width+i]*scale, 0), 255)))
	}
	for _, v := range values {
		try.FailIf(v != v, "the tensor holds nan")
	}
	area := image.Rect(0, 0, width, height)
	var img image.Image
	if channels == 1 {
		gray := image.NewGray(area)
		for i := range height * width {
			gray.Pix[i] = at(0, i)
		}
		img = gray
	} else {
		colors := image.NewNRGBA(area)
		for i := range height * width {
			pixel := color.NRGBA{at(0, i), at(1, i), at(2, i), 255}
			if channels == 4 {
				pixel.A = at(3, i)
			}
			colors.SetNRGBA(i%width, i/width, pixel)
		}
		img = colors
	}
	var out bytes.Buffer
	err = png.Encode(&out, img)
	return out.Bytes(), err
}

func histogram(t *tensor.Tensor) (_ []byte, err error) {
	defer try.Caught(&err)
	values := try.To(floats(t))
	h := struct {
		Edges  []float64 `json:"edges"`
		Counts []int     `json:"counts"`
		NaN    int       `json:"nan"`
		Inf    int       `json:"inf"`
	}{Edges: []float64{}, Counts: []int{}}
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		switch {
		case v != v:
			h.NaN++
		case math.IsInf(v, 0):
			h.Inf++
		default:
			low, high = min(low, v), max(high, v)
		}
	}
	if low <= high {
		h.Counts = make([]int, bins)
		for i := range bins + 1 { // computed in halves, since the range may be too large for a float
			part := float64(i) / bins
			h.Edges = append(h.Edges, low*(1-part)+high*part)
		}
		for _, v := range values {
			if v == v && !math.IsInf(v, 0) {
				i := 0
				if low < high {
					i = int((v/2 - low/2) / (high/2 - low/2) * bins)
				}
				h.Counts[min(i, bins-1)]++
			}
		}
	}
	return json.Marshal(h)
}

func table(rows starlark.Iterable) (_ []byte, err error) {
	defer try.Caught(&err)
	columns, place := []string{}, map[string]int{}
	all := [][]any{}
	size := 0
	it := rows.Iterate()
	defer it.Done()
	var v starlark.Value
	for it.Next(&v) {
		var row []any
		put := func(i int, cell starlark.Value) error {
			value, err := plainCell(cell)
			if err != nil {
				return fmt.Errorf("row %d: %w", len(all), err)
			}
			for len(row) <= i {
				row = append(row, nil)
			}
			row[i] = value
			if size += len(fmt.Sprint(value)) + 1; size > maxArtifact {
				return tooLarge(size)
			}
			return nil
		}
		switch v := v.(type) {
		case *starlark.Dict:
			for _, kv := range v.Items() {
				name, ok := starlark.AsString(kv[0])
				if !ok {
					return nil, fmt.Errorf("row %d: a column's name must be a string, not %s", len(all), kv[0].Type())
				}
				i, known := place[name]
				if !known {
					i = len(columns)
					place[name], columns = i, append(columns, name)
				}
				try.Ok(put(i, kv[1]))
			}
		case starlark.Indexable:
			if _, isText := v.(starlark.String); isText {
				return nil, fmt.Errorf("row %d is a string, not a dict or a list", len(all))
			}
			for i := range v.Len() {
				try.Ok(put(i, v.Index(i)))
			}
		default:
			return nil, fmt.Errorf("row %d is a %s, not a dict or a list", len(all), v.Type())
		}
		if row == nil {
			row = []any{}
		}
		all = append(all, row)
	}
	widest := len(columns)
	for _, row := range all {
		widest = max(widest, len(row))
	}
	for i := len(columns); i < widest; i++ {
		columns = append(columns, fmt.Sprint(i))
	}
	for i, row := range all {
		for len(row) < widest {
			row = append(row, nil)
		}
		all[i] = row
	}
	return json.Marshal(map[string]any{"columns": columns, "rows": all})
}

// plainCell returns a cell as a JSON value; floats that JSON lacks become strings.
func plainCell(v starlark.Value) (any, error) {
	switch v := v.(type) {
	case starlark.NoneType:
		return nil, nil
	case starlark.Bool:
		return bool(v), nil
	case starlark.Int:
		return json.Number(v.String()), nil
	case starlark.String:
		return strings.ToValidUTF8(string(v), "\ufffd"), nil
	}
	x, err := starlib.AsNumber(v)
	switch {
	case err != nil:
		return nil, fmt.Errorf("a cell is a %s, not None, a bool, number or string", v.Type())
	case x != x:
		return "NaN", nil
	case math.IsInf(x, 1):
		return "Infinity", nil
	case math.IsInf(x, -1):
		return "-Infinity", nil
	}
	return x, nil
}
