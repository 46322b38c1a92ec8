package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"drun/internal/programs"
)

// A file that would take more memory than there is for it ends the process that reads it, and is an error of drun.
func TestDataThatTakesTooMuch(t *testing.T) {
	program, err := programs.Path("drun")
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		A int64 `parquet:"a,dict"`
	}
	rows := make([]row, 1000)
	for i := range rows {
		rows[i].A = int64(i % 3 % 2)
	}
	var b bytes.Buffer
	if err := parquet.Write(&b, rows); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.parquet")
	drun := func() (string, error) {
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "data", "--memory", "2000000000", path)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := drun(); err != nil || !strings.Contains(out, "parquet, ") || !strings.Contains(out, "  a: int64\n") {
		t.Fatalf("%v\n%s", err, out)
	}
	indices := bytes.Index(b.Bytes(), []byte("\x01\xfb\x01")) // of one bit each: 125 groups of eight
	if indices < 0 {
		t.Fatal("the page is not found")
	}
	page := b.Bytes()[indices : indices+3+125]
	sum := func() []byte { return binary.AppendVarint(nil, int64(int32(crc32.ChecksumIEEE(page)))) }
	before := sum()
	copy(page[1:], "\xfe\xff\xff\xff\x0f") // 2^31 - 1 times the same one
	for len(sum()) != len(before) {
		page[20]++
	}
	copy(b.Bytes()[bytes.Index(b.Bytes(), before):], sum())
	if out, err := drun(); err == nil || !strings.Contains(out, "a.parquet: it cannot be read with 1.9 GiB of memory: it is damaged, or too large") || strings.Contains(out, "goroutine") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := exec.Command(program, "data", filepath.Join(t.TempDir(), "b.arrow")).CombinedOutput(); err == nil || !strings.Contains(string(out), "b.arrow: no such file") || strings.Count(string(out), "drun:") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
