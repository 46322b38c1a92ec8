package data

import (
	"bufio"
	"bytes"
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
// two bytes tell, not its name. size is the number of bytes to come, or -1.
func open(files *starlib.Files, name string) (in io.Reader, size int64, closer io.Closer, err error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, 0, nil, err
	}
	buffered := bufio.NewReaderSize(f, 64<<10)
	magic, _ := buffered.Peek(2)
	if string(magic) != "\x1f\x8b" {
		size = -1
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		return buffered, size, f, nil
	}
	unpacked, err := gzip.NewReader(buffered)
	if err != nil {
		f.Close()
		return nil, 0, nil, fmt.Errorf("%s: %w", name, gzipError(err))
	}
	return gzipReader{unpacked}, -1, f, nil
}

// gzipReader says of its errors what they are about.
type gzipReader struct{ *gzip.Reader }

func (r gzipReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = gzipError(err)
	}
	return n, err
}

func gzipError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("truncated: the gzip data ends early")
	}
	return fmt.Errorf("the gzip data is garbled: %w", err)
}

// readAll reads a whole file.
func readAll(files *starlib.Files, name string) ([]byte, error) {
	in, size, closer, err := open(files, name)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	var content bytes.Buffer
	if size >= 0 && size <= maxFile {
		content.Grow(int(size) + bytes.MinRead) // so much that reading never grows it
	}
	if _, err := content.ReadFrom(io.LimitReader(in, maxFile+1)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if content.Len() > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, int64(maxFile))
	}
	return content.Bytes(), nil
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
