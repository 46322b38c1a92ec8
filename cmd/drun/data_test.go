package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"drun/internal/programs"
)

// A file of which the library ends the process that reads it is an error of drun.
func TestDataThatTakesTooMuch(t *testing.T) {
	program, err := programs.Path("drun")
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := parquet.Write(&b, []struct {
		A int64 `parquet:"a"`
	}{{1}, {2}}); err != nil {
		t.Fatal(err)
	}
	footer := bytes.Repeat([]byte{0x1c}, 5<<20) // structs within structs, one byte each
	deep := append(binary.LittleEndian.AppendUint32(append([]byte("PAR1"), footer...), uint32(len(footer))), "PAR1"...)
	path := filepath.Join(t.TempDir(), "a.parquet")
	for _, c := range []struct {
		content []byte
		want    string
		fails   bool
	}{
		{b.Bytes(), "  a: int64\n", false},
		{b.Bytes()[:b.Len()-1], "drun: a.parquet: truncated: it does not end with PAR1\n", true},
		{deep, "drun: " + path + ": it cannot be read with 1.9 GiB of memory: it is damaged, or too large", true},
	} {
		if err := os.WriteFile(path, c.content, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(program, "data", "--memory", "2000000000", path).CombinedOutput()
		if (err != nil) != c.fails || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "goroutine") {
			t.Errorf("%v\n%.500s\nwant %s", err, out, c.want)
		}
	}
}
