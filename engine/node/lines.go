package node

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// maxLine is the length in bytes at which a line is cut.
const maxLine = 64 << 10

// lines calls each for every line of r. Bytes that are not UTF-8 are replaced, since the lines are kept as text.
func lines(r io.Reader, each func(text string)) {
	buf := bufio.NewReaderSize(r, maxLine)
	for {
		text, err := buf.ReadSlice('\n')
		if len(text) > 0 {
			each(strings.ToValidUTF8(strings.TrimRight(string(text), "\r\n"), "\ufffd"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
