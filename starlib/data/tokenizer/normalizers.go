package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"golang.org/x/text/runes"
	"golang.org/x/text/unicode/norm"

	"drun/internal/try"
)

// normalizerOf makes a normalizer from the file's description; nil if there is none.
func normalizerOf(raw json.RawMessage, depth int) (_ normalizer, err error) {
	defer try.Caught(&err)
	kind := try.To(kindOf(raw))
	simple := map[string]func(string) string{"NFC": norm.NFC.String, "NFD": norm.NFD.String, "NFKC": norm.NFKC.String, "NFKD": norm.NFKD.String,
		"Lowercase": lower, "StripAccents": stripAccents}[kind]
	if simple != nil {
		return simple, bare(raw)
	}
	switch kind {
	case "":
		return nil, nil
	case "Sequence":
		all, err := sequence(raw, "normalizers", depth, normalizerOf)
		return func(s string) string {
			for _, n := range all {
				s = n(s)
			}
			return s
		}, err
	case "BertNormalizer":
		var b struct {
			Type         string `json:"type"`
			Clean        bool   `json:"clean_text"`
			Chinese      bool   `json:"handle_chinese_chars"`
			StripAccents *bool  `json:"strip_accents"`
			Lower        bool   `json:"lowercase"`
		}
		try.Ok(strict(raw, &b))
		accents := b.Lower
		if b.StripAccents != nil {
			accents = *b.StripAccents
		}
		return func(s string) string {
			if b.Clean {
				s = clean(s)
			}
			if b.Chinese {
				s = spaced(s, func(r rune) bool { return unicode.Is(chinese, r) })
			}
			if accents {
				s = stripAccents(norm.NFD.String(s))
			}
			if b.Lower {
				s = lower(s)
			}
			return s
		}, nil
	case "Precompiled":
		return charsmapOf(raw)
	case "Prepend":
		var p struct {
			Type    string `json:"type"`
			Prepend string `json:"prepend"`
		}
		return func(s string) string {
			if s != "" {
				s = p.Prepend + s
			}
			return s
		}, strict(raw, &p)
	case "Replace":
		return replacerOf(raw)
	case "Strip":
		var p struct {
			Type  string `json:"type"`
			Left  bool   `json:"strip_left"`
			Right bool   `json:"strip_right"`
		}
		return func(s string) string {
			if p.Left {
				s = strings.TrimLeftFunc(s, space)
			}
			if p.Right {
				s = strings.TrimRightFunc(s, space)
			}
			return s
		}, strict(raw, &p)
	}
	return nil, unsupported(kind)
}

// replacerOf makes a function that replaces each match of a pattern; it serves as a normalizer and as a decoder.
func replacerOf(raw json.RawMessage) (_ normalizer, err error) {
	defer try.Caught(&err)
	var r struct {
		Type    string        `json:"type"`
		Pattern patternSource `json:"pattern"`
		Content string        `json:"content"`
	}
	try.Ok(strict(raw, &r))
	p := try.To(r.Pattern.compile())
	return func(s string) string {
		var b strings.Builder
		rest := 0
		for from, to := range p.matches(s) {
			b.WriteString(s[rest:from])
			b.WriteString(r.Content)
			rest = to
		}
		b.WriteString(s[rest:])
		return b.String()
	}, nil
}

// lower makes each letter lowercase, whatever its context.
func lower(s string) string {
	return strings.ToLower(strings.ReplaceAll(s, "İ", "i\u0307")) // the only letter whose lowercase form is two characters
}

var stripAccents = runes.Remove(runes.In(unicode.Mn)).String

// clean removes control characters, and makes all spaces the same.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0 || r == utf8.RuneError:
			return -1
		case r == '\t' || r == '\n' || r == '\r':
			return ' '
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
			return -1
		case space(r):
			return ' '
		}
		return r
	}, s)
}

var chinese = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x3400, Hi: 0x4dbf, Stride: 1}, {Lo: 0x4e00, Hi: 0x9fff, Stride: 1}, {Lo: 0xf900, Hi: 0xfaff, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x20000, Hi: 0x2a6df, Stride: 1}, {Lo: 0x2a700, Hi: 0x2b73f, Stride: 1}, {Lo: 0x2b740, Hi: 0x2b81f, Stride: 1}, {Lo: 0x2b920, Hi: 0x2ceaf, Stride: 1}, {Lo: 0x2f800, Hi: 0x2fa1f, Stride: 1}},
}

// spaced puts spaces around each of those characters.
func spaced(s string, those func(r rune) bool) string {
	var b strings.Builder
	for _, r := range s {
		if those(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// space is Unicode's property White_Space.
func space(r rune) bool { return unicode.Is(unicode.White_Space, r) }

// punctuation is what BERT splits at.
func punctuation(r rune) bool {
	return r > ' ' && r < 127 && !unicode.IsLetter(r) && !unicode.IsDigit(r) || unicode.Is(unicode.P, r)
}

// charsmap is SentencePiece's table of replacements for characters: a double-array trie (Aoe 1989, in Darts-clone's
// layout) of the characters' bytes, whose leaves are offsets in the texts. Each text ends with a zero.
//
// A node is a 32-bit unit. Its child for a byte b is at place ^ offset ^ b, if the unit there has the label b; its leaf,
// if any, at place ^ offset.
type charsmap struct {
	units []uint32
	texts string
}

func unitOffset(u uint32) int { return int(u>>10) << (u & (1 << 9) >> 6) }
func hasLeaf(u uint32) bool   { return u>>8&1 == 1 }

const leafUnit = 1 << 31 // a unit with this bit is a leaf; the rest of it is the value

// charsmapOf reads a normalizer Precompiled. Every unit is checked, so that no text can lead outside the table.
func charsmapOf(raw json.RawMessage) (_ normalizer, err error) {
	defer try.Caught(&err)
	var p struct {
		Type string `json:"type"`
		Map  string `json:"precompiled_charsmap"`
	}
	try.Ok(strict(raw, &p))
	content, err := base64.StdEncoding.DecodeString(p.Map)
	try.FailIf(err != nil, "precompiled_charsmap: %w", err)
	try.FailIf(len(content) < 4, "precompiled_charsmap: it ends early")
	size := int64(binary.LittleEndian.Uint32(content))
	content = content[4:]
	try.FailIf(size > int64(len(content)) || size%1024 != 0 || size == 0, "precompiled_charsmap: a trie of %d bytes in %d; want whole blocks of 1024", size, len(content))
	m := &charsmap{units: make([]uint32, size/4), texts: string(content[size:])}
	try.FailIf(!utf8.ValidString(m.texts), "precompiled_charsmap: its strings are not UTF-8")
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(content[4*i:])
	}
	for i, u := range m.units {
		if u&leafUnit != 0 {
			continue
		}
		base := i ^ unitOffset(u)
		if base|0xff >= len(m.units) {
			return nil, fmt.Errorf("precompiled_charsmap: unit %d points outside the trie", i)
		}
		if at := int(m.units[base] &^ leafUnit); hasLeaf(u) && (at >= len(m.texts) || !utf8.RuneStart(m.texts[at])) {
			return nil, fmt.Errorf("precompiled_charsmap: unit %d has no text", i)
		}
	}
	return m.normalize, nil
}

// find returns the replacement for the shortest beginning of s that the table has.
func (m *charsmap) find(s string) (text string, ok bool) {
	at := unitOffset(m.units[0])
	for i := 0; i < len(s) && s[i] != 0; i++ {
		at ^= int(s[i])
		u := m.units[at]
		if u&(leafUnit|0xff) != uint32(s[i]) {
			return "", false
		}
		if at ^= unitOffset(u); hasLeaf(u) {
			text, _, _ = strings.Cut(m.texts[m.units[at]&^leafUnit:], "\x00")
			return text, true
		}
	}
	return "", false
}

// normalize replaces characters. If a character has several code points (a grapheme cluster) and fewer than six bytes, the
// replacement of its first ones replaces all of it, as in Hugging Face's library.
func (m *charsmap) normalize(s string) string {
	var b strings.Builder
	var cluster string
	state, rest := -1, s
	for rest != "" {
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if len(cluster) < 6 {
			if text, ok := m.find(cluster); ok {
				b.WriteString(text)
				continue
			}
		}
		for _, r := range cluster {
			if text, ok := m.find(string(r)); ok {
				b.WriteString(text)
			} else {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}
