package proof

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"drun/checkpoints"
	"drun/internal/try"
)

// A checkpoint is a member in the format of safetensors, which PyTorch, JAX and NumPy read. A tensor that is the same on
// all ranks is there once, under its name; what a rank has for itself is NAME@rankN. Values that are not tensors are
// arrays of bytes. The metadata has under "drun" what each rank has saved, in its order.

// layout is that metadata.
type layout struct {
	Step   int64     `json:"step"`
	Score  *string   `json:"score"` // exactly
	Points int64     `json:"points"`
	Ranks  [][]piece `json:"ranks"`
}

// piece is an entry of a rank.
type piece struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	Tensor string `json:"tensor"` // its name in the file
}

// stored is a tensor in the header of a file.
type stored struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// codes are the names of types in the format. Others are stored as bytes.
var codes = map[string]string{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int8": "I8", "uint8": "U8", "bool": "BOOL", "complex64": "C64"}

// maxHeader is how long the header of a file may be, as in the format's own readers.
const maxHeader = 100 << 20

// writeState writes a checkpoint.
func writeState(w io.Writer, v *checkpoints.View) (err error) {
	defer try.Caught(&err)
	known, taken := map[string]string{}, map[string]bool{"": true, "__metadata__": true}
	header, order := map[string]any{}, []checkpoints.Located{}
	to := &layout{Step: v.Info.Step, Points: v.Info.Points}
	if v.Info.Score != nil {
		to.Score = new(strconv.FormatFloat(*v.Info.Score, 'g', -1, 64))
	}
	end := int64(0)
	for rank, part := range v.Parts {
		pieces := []piece{}
		for _, e := range part {
			data := fmt.Sprintf("%d %d %s %v", e.Offset, e.Bytes, e.DType, e.Shape)
			name, is := known[data]
			if !is {
				for name = e.Name; taken[name]; {
					name = fmt.Sprintf("%s@rank%d", name, rank)
				}
				known[data], taken[name] = name, true
				s := stored{codes[e.DType], append([]int{}, e.Shape...), [2]int64{end, end + e.Bytes}}
				if s.DType == "" {
					s.DType, s.Shape = "U8", []int{int(e.Bytes)}
				}
				header[name], order, end = s, append(order, e), end+e.Bytes
			}
			pieces = append(pieces, piece{e.Name, e.Kind, e.DType, e.Shape, name})
		}
		to.Ranks = append(to.Ranks, pieces)
	}
	description := try.To(json.Marshal(to))
	header["__metadata__"] = map[string]string{"drun": string(description)}
	text := try.To(json.Marshal(header)) // with its keys in order
	text = append(text, strings.Repeat(" ", (8-len(text)%8)%8)...)
	try.FailIf(len(text) > maxHeader, "the checkpoint of step %d: the names and shapes take %d bytes, and a .safetensors file has room for %d", v.Info.Step, len(text), maxHeader)
	try.To(w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))))
	try.To(w.Write(text))
	return v.InOrder(order, func(data []byte) error { _, err := w.Write(data); return err })
}

// readState reads a checkpoint that came from anywhere.
func readState(in *io.SectionReader) (_ *layout, score *float64, parts map[int][]checkpoints.Entry, err error) {
	defer try.Caught(&err)
	var length [8]byte
	try.To(in.ReadAt(length[:], 0))
	n := binary.LittleEndian.Uint64(length[:])
	try.FailIf(n > maxHeader || int64(n)+8 > in.Size(), "its header cannot have %d bytes", n)
	text := make([]byte, n)
	try.To(in.ReadAt(text, 8))
	var header map[string]json.RawMessage
	try.Ok(json.Unmarshal(text, &header))
	var metadata map[string]string
	try.Ok(json.Unmarshal(header["__metadata__"], &metadata))
	l := &layout{}
	try.Ok(json.Unmarshal([]byte(metadata["drun"]), l))
	if l.Score != nil {
		score = new(try.To(strconv.ParseFloat(*l.Score, 64)))
	}
	start, size := 8+int64(n), in.Size()-8-int64(n)
	try.FailIf(len(l.Ranks) == 0, "it has no rank")
	read := map[string][]byte{}
	parts = map[int][]checkpoints.Entry{}
	for rank, pieces := range l.Ranks {
		parts[rank] = []checkpoints.Entry{}
		for _, p := range pieces {
			data, is := read[p.Tensor]
			if !is {
				var s stored
				raw, there := header[p.Tensor]
				try.FailIf(!there, "the tensor %s is missing", strconv.Quote(p.Tensor))
				try.Ok(json.Unmarshal(raw, &s))
				from, to := s.Offsets[0], s.Offsets[1]
				try.FailIf(from < 0 || to < from || to > size, "the tensor %s lies outside the file", strconv.Quote(p.Tensor))
				data = make([]byte, to-from)
				if len(data) > 0 {
					try.To(in.ReadAt(data, start+from))
				}
				read[p.Tensor] = data
			}
			parts[rank] = append(parts[rank], checkpoints.Entry{Name: p.Name, Kind: p.Kind, DType: p.DType, Shape: p.Shape, Data: data})
		}
	}
	return l, score, parts, nil
}
