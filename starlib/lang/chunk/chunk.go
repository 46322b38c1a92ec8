// Package chunk reads chunked recipe files, in which drun's tests of recipes are written. The tests of lang use it,
// and so does the runner that executes recipes on several ranks.
//
// A file holds several recipes, separated by lines "---". Each may begin with
// comments that configure it, and marks lines where an error is expected with its pattern:
//
//	# name: sizes differ
//	# ranks: 2 4
//	def main():
//	    dist.all_gather([1], 2)  ### "all_gather: .* arguments"
//	---
//	…
package chunk

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"drun/internal/try"
)

// A Chunk is one recipe of a file.
type Chunk struct {
	File   string
	Line   int               // where it begins in the file
	Name   string            // from "# name:", else "line N"
	Ranks  []int             // from "# ranks:", nil without
	Header map[string]string // every "# key: value" at its head
	Source []byte            // blank lines come first, so that it has the file's line numbers
	Want   []Expectation     // in the order of lines
}

// An Expectation is an error that is expected on a line.
type Expectation struct {
	Line    int
	Pattern *regexp.Regexp
}

// A Fault is an error that happened.
type Fault struct {
	Line int
	Msg  string
}

// Read splits a file into its chunks.
func Read(filename string, src []byte) (_ []Chunk, err error) {
	defer try.Caught(&err)
	var chunks []Chunk
	lines := bytes.Split(src, []byte("\n"))
	for start := 0; start < len(lines); {
		end := start
		for end < len(lines) && string(bytes.TrimRight(lines[end], " \t\r")) != "---" {
			end++
		}
		c := try.To(read(filename, lines[start:end], start))
		chunks = append(chunks, c)
		start = end + 1
	}
	for i, c := range chunks {
		for _, other := range chunks[:i] {
			try.FailIf(c.Name == other.Name, "%s:%d: a second chunk is named %q", filename, c.Line, c.Name)
		}
	}
	return chunks, nil
}

var (
	header = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^#\s*([a-z][a-z_-]*):\s*(.*?)\s*$`) })
	want   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("###\\s*(\".*\"|`.*`)\\s*$") })
)

func read(filename string, lines [][]byte, start int) (Chunk, error) {
	c := Chunk{File: filename, Line: start + 1, Header: make(map[string]string)}
	c.Name = fmt.Sprintf("line %d", c.Line)
	fail := func(i int, format string, args ...any) (Chunk, error) {
		return Chunk{}, fmt.Errorf("%s:%d: %s", filename, start+i+1, fmt.Sprintf(format, args...))
	}
	head := true
	source := slices.Clone(lines)
	for i, line := range lines {
		text := strings.TrimSpace(string(line))
		if head && (text == "" || text[0] == '#') {
			if m := header().FindStringSubmatch(text); m != nil {
				if _, twice := c.Header[m[1]]; twice {
					return fail(i, "a second %q in the head of one chunk", m[1])
				}
				c.Header[m[1]] = m[2]
				if err := c.configure(m[1], m[2]); err != nil {
					return fail(i, "%v", err)
				}
			}
			continue
		}
		head = false
		if m := want().FindStringSubmatch(text); m != nil {
			pattern, err := strconv.Unquote(m[1])
			if err != nil {
				return fail(i, "expected error %s: %v", m[1], err)
			}
			re, err := regexp.Compile(pattern)
			if err != nil {
				return fail(i, "expected error: %v", err)
			}
			c.Want = append(c.Want, Expectation{Line: start + i + 1, Pattern: re})
			// A traceback shows the line, and the pattern must not match there.
			source[i] = bytes.TrimRight(line[:bytes.LastIndex(line, []byte("###"))], " ")
		} else if strings.Contains(text, "###") {
			return fail(i, `a ### without a "regexp" after it`)
		}
	}
	if head {
		return fail(0, "an empty chunk")
	}
	c.Source = append(bytes.Repeat([]byte("\n"), start), bytes.Join(source, []byte("\n"))...)
	return c, nil
}

func (c *Chunk) configure(key, value string) error {
	switch key {
	case "name":
		if c.Name = value; value == "" {
			return fmt.Errorf("an empty name")
		}
	case "ranks":
		for _, word := range strings.Fields(value) {
			n, err := strconv.Atoi(word)
			if err != nil || n < 1 || slices.Contains(c.Ranks, n) {
				return fmt.Errorf("ranks: %q: want world sizes, each once, as in 1 2 4", value)
			}
			c.Ranks = append(c.Ranks, n)
		}
		if c.Ranks == nil {
			return fmt.Errorf("ranks: want world sizes, as in 1 2 4")
		}
	}
	return nil
}

// Check compares the errors that happened with those expected, and returns what is wrong, one line each.
func (c *Chunk) Check(faults []Fault) []string {
	var wrong []string
	met := make([]bool, len(c.Want))
	for _, f := range faults {
		expected := false
		for i, w := range c.Want {
			if w.Line == f.Line && w.Pattern.MatchString(f.Msg) {
				met[i], expected = true, true
			}
		}
		if !expected {
			wrong = append(wrong, fmt.Sprintf("%s:%d: unexpected error: %s", c.File, f.Line, f.Msg))
		}
	}
	for i, w := range c.Want {
		if !met[i] {
			wrong = append(wrong, fmt.Sprintf("%s:%d: no error here that matches %q", c.File, w.Line, w.Pattern))
		}
	}
	return wrong
}
