package exchange

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"drun/history"
	"drun/history/records"
	"drun/internal/try"
)

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
	for _, part := range [][]byte{length, data} { // each with its sum
		_, _ = w.Write(part) // Flush returns the error
		_, _ = w.Write(binary.LittleEndian.AppendUint32(nil, masked(part)))
	}
}
