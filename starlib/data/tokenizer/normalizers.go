package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizerOf makes a normalizer from the file's description; nil if there is none.
func normalizerOf(raw json.RawMessage, depth int) (normalizer, error) {
	kind, err := kindOf(raw)
	if err != nil {
		return nil, err
	}
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
		if err := strict(raw, &b); err != nil {
			return nil, err
		}
		accents := b.Lower
		if b.StripAccents != nil {
			accents = *b.StripAccents
		}
		return func(s string) string {
			if b.Clean {
				s = clean(s)
			}
			if b.Chinese {
				s = padChinese(s)
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

// replacerOf replaces each match of a pattern by a text: a normalizer, and a decoder.
func replacerOf(raw json.RawMessage) (normalizer, error) {
	var r struct {
		Type    string        `json:"type"`
		Pattern patternSource `json:"pattern"`
		Content string        `json:"content"`
	}
	if err := strict(raw, &r); err != nil {
		return nil, err
	}
	p, err := r.Pattern.compile()
	if err != nil {
		return nil, err
	}
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
	var b strings.Builder
	for _, r := range s {
		if r == 'İ' { // the only letter whose lowercase form is two characters
			b.WriteString("i\u0307")
		} else {
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

func stripAccents(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, s)
}

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

// padChinese puts spaces around each Chinese character.
func padChinese(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.Is(chinese, r) {
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
