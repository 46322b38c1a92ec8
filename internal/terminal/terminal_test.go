package terminal

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestEscape(t *testing.T) {
	for text, want := range map[string][3]string{ // Escape, Line, Lines
		"plain, with spaces":      {"plain, with spaces", "plain, with spaces", "plain, with spaces"},
		"größe 日本 🙂":              {"größe 日本 🙂", "größe 日本 🙂", "größe 日本 🙂"},
		"a\tb\nc\rd":              {`a\tb\nc\rd`, "a\tb\\nc\\rd", "a\tb\nc\\rd"},
		"\x1b]52;c;ZXZpbA==\x07":  {`\x1b]52;c;ZXZpbA==\x07`, `\x1b]52;c;ZXZpbA==\x07`, `\x1b]52;c;ZXZpbA==\x07`},
		"\x00\x08\x0b\x0c\x7f":    {`\x00\x08\x0b\x0c\x7f`, `\x00\x08\x0b\x0c\x7f`, `\x00\x08\x0b\x0c\x7f`},
		"\u009b31m\u0085":         {`\u009b31m\u0085`, `\u009b31m\u0085`, `\u009b31m\u0085`},
		"\x9b31m\xff":             {`\x9b31m\xff`, `\x9b31m\xff`, `\x9b31m\xff`},
		"a\u202eb\u2066c\u2028d":  {`a\u202eb\u2066c\u2028d`, `a\u202eb\u2066c\u2028d`, `a\u202eb\u2066c\u2028d`},
		`a \x1b that was written`: {`a \x1b that was written`, `a \x1b that was written`, `a \x1b that was written`},
		"\ufffd is a character":   {"\ufffd is a character", "\ufffd is a character", "\ufffd is a character"},
	} {
		if got := [3]string{Escape(text), Line(text), Lines(text)}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for r := rune(0); r < 0x110000; r++ {
		s := Escape(string(r))
		if strings.ContainsFunc(s, hidden) {
			t.Errorf("%q comes out as %q", r, s)
		}
	}
}

func TestJSON(t *testing.T) {
	const text = "\x1b \u009b \u202e \u0085 \x7f 日"
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	safe := JSON(string(raw))
	if strings.ContainsFunc(safe, hidden) {
		t.Errorf("%q", safe)
	}
	var back string
	if err := json.Unmarshal([]byte(safe), &back); err != nil || back != text {
		t.Errorf("%q, %v", back, err)
	}
}

func TestCell(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "loss": "loss", "=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0", "+1": "'+1", "-0.5": "'-0.5", "@SUM(A1)": "'@SUM(A1)", "\t=1": "'\t=1", "\r=1": "'\r=1", "a=b": "a=b",
	} {
		if got := Cell(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestWord(t *testing.T) {
	for text, want := range map[string]string{"train.star": "train.star", "data/a-b_c=1,2:é@h%+": "data/a-b_c=1,2:é@h%+", "": "''", "my folder/x": "'my folder/x'",
		"it's": `'it'\''s'`, "$HOME": "'$HOME'", "a\nb": `'a\nb'`, "*": "'*'", "~": "'~'"} {
		if got := Word(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
