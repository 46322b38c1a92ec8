// Package columnar writes Parquet. It is linked by drun-plugin-host alone, which `drun export` starts for it,
// as the library would slow the start of every run.
package columnar

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/parquet-go/parquet-go"
)

// Point is a row.
type Point struct {
	Run     int64     `parquet:"run"`
	RunName string    `parquet:"run_name,dict"`
	Metric  string    `parquet:"metric,dict"`
	Step    int64     `parquet:"step,delta"`
	Rank    int32     `parquet:"rank"`
	Value   float64   `parquet:"value"`
	Time    time.Time `parquet:"time,timestamp(microsecond)"`
}

// Parquet reads the rows that exchange.Encode has written, and writes them as Parquet.
func Parquet(r io.Reader, w io.Writer) error {
	in := bufio.NewReaderSize(r, 1<<20)
	out := parquet.NewGenericWriter[Point](w, parquet.Compression(&parquet.Snappy), parquet.CreatedBy("drun", "1", ""))
	rows := make([]Point, 0, 4096)
	for {
		p, err := decode(in)
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return err
		}
		if !last {
			rows = append(rows, p)
		}
		if last || len(rows) == cap(rows) {
			if _, err := out.Write(rows); err != nil {
				return err
			}
			rows = rows[:0]
		}
		if last {
			return out.Close()
		}
	}
}

// decode reads a row: the numbers, and the two texts with their lengths before them. io.EOF: there is no other.
func decode(in *bufio.Reader) (p Point, err error) {
	var numbers [5]uint64
	if err := binary.Read(in, binary.LittleEndian, &numbers); err != nil {
		return p, err
	}
	for _, text := range []*string{&p.RunName, &p.Metric} {
		var size uint32
		if err := binary.Read(in, binary.LittleEndian, &size); err != nil {
			return p, short(err)
		}
		if size > 1<<20 {
			return p, fmt.Errorf("a name of %d bytes", size)
		}
		content := make([]byte, size)
		if _, err := io.ReadFull(in, content); err != nil {
			return p, short(err)
		}
		*text = string(content)
	}
	p.Run, p.Step, p.Rank = int64(numbers[0]), int64(numbers[1]), int32(numbers[2])
	p.Value, p.Time = math.Float64frombits(numbers[3]), time.UnixMicro(int64(numbers[4])).UTC()
	return p, nil
}

func short(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF // within a row: the other side has ended
	}
	return err
}
