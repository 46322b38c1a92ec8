package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"

	"drun/internal/try"
)

// letters are the characters that stand for bytes in a byte-level vocabulary: printable ones for themselves, the others
// from 256 on.
var letters = sync.OnceValues(func() (to [256]rune, from map[rune]byte) {
	from = map[rune]byte{}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= '¡' && r <= '¬' || r >= '®' && r <= 'ÿ') {
			r = next
			next++
		}
		to[b], from[r] = r, byte(b)
	}
	return to, from
})

func toLetters(s string) string {
	var b strings.Builder
	to, _ := letters()
	for i := range len(s) {
		b.WriteRune(to[s[i]])
	}
	return b.String()
}

// decoderOf makes a decoder from the file's description.
func decoderOf(raw json.RawMessage, depth int) (_ decoder, err error) {
	defer try.Caught(&err)
	kind := try.To(kindOf(raw))
	switch kind {
	case "":
		return func(tokens []string) []string { return []string{strings.Join(tokens, " ")} }, nil
	case "Sequence":
		all, err := sequence(raw, "decoders", depth, decoderOf)
		return func(tokens []string) []string {
			for _, d := range all {
				tokens = d(tokens)
			}
			return tokens
		}, err
	case "ByteFallback":
		return joinBytes, bare(raw)
	case "Fuse":
		return func(tokens []string) []string { return []string{strings.Join(tokens, "")} }, bare(raw)
	case "Replace":
		replace, err := replacerOf(raw)
		return each(func(_ int, t string) string { return replace(t) }), err
	case "Strip":
		return stripperOf(raw)
	case "Metaspace":
		m := try.To(readMetaspace(raw))
		return each(func(i int, t string) string {
			to := " "
			if i == 0 && m.Scheme != "never" {
				to = ""
			}
			return strings.ReplaceAll(t, m.Replacement, to)
		}), nil
	case "ByteLevel":
		var b struct {
			Type   string `json:"type"`
			Prefix bool   `json:"add_prefix_space"`
			Trim   bool   `json:"trim_offsets"`
			Regex  bool   `json:"use_regex"`
		}
		return func(tokens []string) []string {
			var out []byte
			_, bytesOf := letters()
			for _, t := range tokens {
				before := len(out)
				for _, r := range t {
					b, ok := bytesOf[r]
					if !ok { // an added token that is plain text
						out = append(out[:before], t...)
						break
					}
					out = append(out, b)
				}
			}
			whole, _ := unicode.UTF8.NewDecoder().Bytes(out) // with U+FFFD for what is not a character
			return []string{string(whole)}
		}, strict(raw, &b)
	case "WordPiece":
		var w struct {
			Type    string `json:"type"`
			Prefix  string `json:"prefix"`
			Cleanup bool   `json:"cleanup"`
		}
		try.Ok(strict(raw, &w))
		return each(func(i int, t string) string {
			if i > 0 {
				if rest, on := strings.CutPrefix(t, w.Prefix); on {
					t = rest
				} else {
					t = " " + t
				}
			}
			if w.Cleanup {
				for _, c := range cleanups {
					t = strings.ReplaceAll(t, c[0], c[1])
				}
			}
			return t
		}), nil
	}
	return nil, unsupported(kind)
}

var cleanups = [][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}

// each makes a decoder of one token at a time; i is the token's index.
func each(of func(i int, t string) string) decoder {
	return func(tokens []string) []string {
		out := make([]string, len(tokens))
		for i, t := range tokens {
			out[i] = of(i, t)
		}
		return out
	}
}

// byteToken returns the token for a byte that no other token has, such as <0x0A>.
func byteToken(b byte) string { return fmt.Sprintf("<0x%02X>", b) }

func byteOf(token string) (byte, bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	n, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(n), err == nil
}

// joinBytes turns byte tokens into text, with U+FFFD for each byte that is not part of a character.
func joinBytes(tokens []string) (out []string) {
	var run []byte
	end := func() {
		switch {
		case len(run) == 0:
		case utf8.Valid(run):
			out = append(out, string(run))
		default:
			for range run {
				out = append(out, string(utf8.RuneError))
			}
		}
		run = nil
	}
	for _, t := range tokens {
		if b, ok := byteOf(t); ok {
			run = append(run, b)
			continue
		}
		end()
		out = append(out, t)
	}
	end()
	return out
}

// stripperOf makes a decoder that removes up to a given number of a character at the start and end of each token.
func stripperOf(raw json.RawMessage) (_ decoder, err error) {
	defer try.Caught(&err)
	var s struct {
		Type    string `json:"type"`
		Content string `json:"content"`
		Start   int    `json:"start"`
		Stop    int    `json:"stop"`
	}
	try.Ok(strict(raw, &s))
	try.FailIf(utf8.RuneCountInString(s.Content) != 1, "content: %q: want one character", short(s.Content))
	try.FailIf(s.Start < 0 || s.Stop < 0, "start and stop: want numbers from 0")
	return each(func(_ int, t string) string {
		for n := 0; n < s.Start && strings.HasPrefix(t, s.Content); n++ {
			t = t[len(s.Content):]
		}
		for n := 0; n < s.Stop && strings.HasSuffix(t, s.Content); n++ {
			t = t[:len(t)-len(s.Content)]
		}
		return t
	}), nil
}
