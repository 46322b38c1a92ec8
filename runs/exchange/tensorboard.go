package exchange

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"drun/history"
	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/try"
)

// A TensorBoard event file is a sequence of records: the length (8 bytes), its checksum, the data, its checksum. The
// data is an Event as a protocol buffer, of which only scalars are read here.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns a checksum in the form in which such files store it.
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// readEvents reads the scalars of an event file. The last record may be cut off if the writer was killed.
func readEvents(path, mark string, content []byte) ([]history.Foreign, []string, error) {
	run := history.Foreign{Mark: mark, Name: filepath.Base(filepath.Dir(path)), Source: path, Tool: "TensorBoard", Status: history.Done}
	var notes []string
	others := 0
	for at := 0; at < len(content); {
		rest := content[at:]
		fault := func(what string) error {
			return exit.WithHint(exit.Errorf(exit.Usage, "%s: the record at byte %d %s", path, at, what), "is it a file of TensorBoard's events, and whole?")
		}
		if len(rest) < 12 {
			notes = append(notes, fmt.Sprintf("%s: the last record is cut off, and left out", path))
			break
		}
		size := binary.LittleEndian.Uint64(rest)
		if binary.LittleEndian.Uint32(rest[8:]) != masked(rest[:8]) {
			return nil, nil, fault("has a wrong length")
		}
		if size > uint64(len(rest)) || len(rest) < 16+int(size) {
			notes = append(notes, fmt.Sprintf("%s: the last record is cut off, and left out", path))
			break
		}
		data := rest[12 : 12+size]
		if binary.LittleEndian.Uint32(rest[12+size:]) != masked(data) {
			return nil, nil, fault("is damaged")
		}
		skipped, err := event(&run, data)
		if err != nil {
			return nil, nil, fault("is no event: " + err.Error())
		}
		others += skipped
		at += 16 + int(size)
	}
	if others > 0 {
		notes = append(notes, fmt.Sprintf("%s: %d values are left out, which are no scalars", path, others))
	}
	setTimes(&run)
	return []history.Foreign{run}, notes, nil
}

// field is one of a message, with its number, and a value that is a number or bytes.
type field struct {
	number protowire.Number
	value  uint64
	data   []byte
}

// fields are those of a message; a mistake in it ends the read.
func fields(message []byte) iter.Seq[field] {
	return func(yield func(field) bool) {
		for len(message) > 0 {
			f := field{}
			number, kind, n := protowire.ConsumeTag(message)
			consumed := func(n int) { try.Ok(protowire.ParseError(n)); message = message[n:] }
			consumed(n)
			switch f.number = number; kind {
			case protowire.VarintType:
				f.value, n = protowire.ConsumeVarint(message)
			case protowire.Fixed64Type:
				f.value, n = protowire.ConsumeFixed64(message)
			case protowire.Fixed32Type:
				var short uint32
				short, n = protowire.ConsumeFixed32(message)
				f.value = uint64(short)
			case protowire.BytesType:
				f.data, n = protowire.ConsumeBytes(message)
			default:
				n = protowire.ConsumeFieldValue(number, kind, message)
			}
			if consumed(n); !yield(f) {
				return
			}
		}
	}
}

// event adds the scalars of an Event: wall_time 1, step 2, summary 5. others counts the values that are not scalars.
func event(run *history.Foreign, data []byte) (others int, err error) {
	defer try.Caught(&err)
	p := records.Point{Exact: true}
	var summary []byte
	for f := range fields(data) {
		switch f.number {
		case 1:
			seconds := math.Float64frombits(f.value)
			try.FailIf(math.IsNaN(seconds) || math.Abs(seconds) > 1e11, "its time is %v", seconds)
			whole, part := math.Modf(seconds)
			p.Time = time.Unix(int64(whole), int64(part*1e9)).UTC()
		case 2:
			p.Step = int64(f.value)
		case 5:
			summary = f.data
		}
	}
	for value := range fields(summary) {
		if value.number != 1 {
			continue
		}
		scalar := false
		for f := range fields(value.data) {
			switch f.number {
			case 1:
				p.Name = string(f.data)
			case 2: // simple_value
				p.Value, scalar = float64(math.Float32frombits(uint32(f.value))), true
			case 8:
				p.Value, scalar = tensor(f.data)
			}
		}
		if scalar {
			run.Points = append(run.Points, p)
		} else {
			others++
		}
	}
	return others, nil
}

// tensor reads a TensorProto with one number: dtype 1, tensor_shape 2, tensor_content 4, float_val 5, double_val 6.
func tensor(data []byte) (value float64, scalar bool) {
	const float, double = 1, 2
	var kind uint64
	var raw []byte
	shaped := false
	for f := range fields(data) {
		switch f.number {
		case 1:
			kind = f.value
		case 2:
			shaped = len(f.data) > 0
		case 4, 5, 6:
			if raw = f.data; raw == nil { // not packed
				raw = binary.LittleEndian.AppendUint64(nil, f.value)[:4*(f.number-4)]
			}
		}
	}
	switch {
	case shaped:
	case kind == float && len(raw) == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), true
	case kind == double && len(raw) == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw)), true
	}
	return 0, false
}

// WriteTensorBoard makes a folder with a folder per run, by its name, that contains an event file. TensorBoard
// keeps values as 32-bit floats. Metrics of ranks other than 0 are called NAME/rankN.
func WriteTensorBoard(folder string, db *history.DB, runs []int64) (err error) {
	defer try.Caught(&err)
	try.Ok(os.Mkdir(folder, 0o777))
	list := try.To(db.Select(history.Selection{IDs: runs}))
	for i := range list {
		try.Ok(writeEvents(filepath.Join(folder, list[i].Name), db, &list[i]))
	}
	return nil
}

func writeEvents(folder string, db *history.DB, r *history.Summary) (err error) {
	defer try.Caught(&err)
	of := try.To(db.Points(r.ID))
	try.Ok(os.Mkdir(folder, 0o777))
	file := try.To(os.OpenFile(filepath.Join(folder, fmt.Sprintf("events.out.tfevents.%d.drun", r.Started.Unix())), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666))
	out := bufio.NewWriterSize(file, 1<<20)
	head := protowire.AppendTag(seconds(nil, r.Started.UnixMicro()), 3, protowire.BytesType)
	writeRecord(out, protowire.AppendString(head, "brain.Event:2"))
	for i := range of {
		writeRecord(out, scalar(&of[i]))
	}
	if err := out.Flush(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// seconds adds the field wall_time of an Event.
func seconds(event []byte, micros int64) []byte {
	event = protowire.AppendTag(event, 1, protowire.Fixed64Type)
	return protowire.AppendFixed64(event, math.Float64bits(float64(micros)/1e6))
}

// scalar encodes an Event with one value.
func scalar(p *records.Point) []byte {
	name := p.Name
	if p.Rank > 0 {
		name += "/rank" + strconv.Itoa(p.Rank)
	}
	value := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	value = protowire.AppendFixed32(protowire.AppendTag(value, 2, protowire.Fixed32Type), math.Float32bits(float32(p.Value)))
	summary := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), value)
	event := seconds(nil, p.Time.UnixMicro())
	event = protowire.AppendVarint(protowire.AppendTag(event, 2, protowire.VarintType), uint64(p.Step))
	return protowire.AppendBytes(protowire.AppendTag(event, 5, protowire.BytesType), summary)
}

// writeRecord adds a record of an event file.
func writeRecord(w *bufio.Writer, data []byte) {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	for _, part := range [][]byte{length, data} { // each with its checksum
		_, _ = w.Write(part) // Flush returns the error
		_, _ = w.Write(binary.LittleEndian.AppendUint32(nil, masked(part)))
	}
}
