package node

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("y", 3*maxLine/2)
	for in, want := range map[string][]string{
		"":                 nil,
		"a\nb":             {"a", "b"},
		"a\r\n\n":          {"a", ""},
		"\xff\xfe\x00ok\n": {"\ufffd\x00ok"},
		long + "\nz\n":     {long[:maxLine], long[maxLine:], "z"},
	} {
		var got []string
		lines(strings.NewReader(in), func(text string) {
			if !utf8.ValidString(text) {
				t.Errorf("%q is not UTF-8", text)
			}
			got = append(got, text)
		})
		if !slices.Equal(got, want) {
			t.Errorf("%.20q: %d lines, want %d: %.60q", in, len(got), len(want), got)
		}
	}
}
