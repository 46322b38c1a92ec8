package data

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"drun/starlib"
)

// maxFile bounds what is read into memory, so that a small gzip file that unpacks
// without end is an error.
const maxFile = 16 << 30

// open opens a file that the recipe may read, unpacked if it is gzip: its first
// two bytes tell, not its name.
func open(files *starlib.Files, name string) (io.Reader, io.Closer, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReaderSize(f, 64<<10)
	magic, _ := in.Peek(2)
	if string(magic) != "\x1f\x8b" {
		return in, f, nil
	}
	unpacked, err := gzip.NewReader(in)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return unpacked, f, nil
}

// readAll reads a whole file.
func readAll(files *starlib.Files, name string) ([]byte, error) {
	in, closer, err := open(files, name)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	content, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, maxFile)
	}
	return content, nil
}

// readText reads a file of UTF-8 text.
func readText(files *starlib.Files, name string) (string, error) {
	content, err := readAll(files, name)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(content) {
		return "", errors.New(name + ": not UTF-8 text; read it with data.bytes")
	}
	return string(content), nil
}
