package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizerOf is a normalizer of the file; nil: there is none.
func normalizerOf(raw json.RawMessage, depth int) (normalizer, error) {
	if none(raw) {
		return nil, nil
	}
	kind, err := kindOf(raw)
	if err != nil {
		return nil, err
	}
	var bare struct {
		Type string `json:"type"`
	}
	simple := map[string]normalizer{"NFC": norm.NFC.String, "NFD": norm.NFD.String, "NFKC": norm.NFKC.String, "NFKD": norm.NFKD.String,
		"Lowercase": lower, "StripAccents": stripAccents}[kind]
	if simple != nil {
		return simple, strict(raw, &bare)
	}
	switch kind {
	case "Sequence":
		var s struct {
			Type string            `json:"type"`
			Of   []json.RawMessage `json:"normalizers"`
		}
		if err := strict(raw, &s); err != nil || depth > maxDepth {
			return nil, deep(err)
		}
		var all []normalizer
		for i, r := range s.Of {
			n, err := normalizerOf(r, depth+1)
			if err != nil {
				return nil, fmt.Errorf("normalizers: %d: %w", i, err)
			}
			if n != nil {
				all = append(all, n)
			}
		}
		return func(s string) string {
			for _, n := range all {
				s = n(s)
			}
			return s
		}, nil
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
	}
	return nil, unsupported(kind)
}

// lower makes each letter a small one, whatever is around it.
func lower(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == 'İ' { // the only letter whose small form is two characters
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

// clean leaves out control characters, and makes every space the same.
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

// splitterOf is a pre-tokenizer of the file; nil: there is none.
func splitterOf(raw json.RawMessage, depth int) (splitter, error) {
	if none(raw) {
		return nil, nil
	}
	kind, err := kindOf(raw)
	if err != nil {
		return nil, err
	}
	var bare struct {
		Type string `json:"type"`
	}
	switch kind {
	case "Sequence":
		var s struct {
			Type string            `json:"type"`
			Of   []json.RawMessage `json:"pretokenizers"`
		}
		if err := strict(raw, &s); err != nil || depth > maxDepth {
			return nil, deep(err)
		}
		var all []splitter
		for i, r := range s.Of {
			p, err := splitterOf(r, depth+1)
			if err != nil {
				return nil, fmt.Errorf("pretokenizers: %d: %w", i, err)
			}
			if p != nil {
				all = append(all, p)
			}
		}
		return func(pieces []string) []string {
			for _, p := range all {
				pieces = p(pieces)
			}
			return pieces
		}, nil
	case "ByteLevel":
		b := struct {
			Type   string `json:"type"`
			Prefix bool   `json:"add_prefix_space"`
			Trim   bool   `json:"trim_offsets"`
			Regex  bool   `json:"use_regex"`
		}{Regex: true}
		if err := strict(raw, &b); err != nil {
			return nil, err
		}
		gpt2, err := newPattern(`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`)
		if err != nil {
			return nil, err
		}
		return func(pieces []string) (out []string) {
			for _, s := range pieces {
				if b.Prefix && !strings.HasPrefix(s, " ") {
					s = " " + s
				}
				if !b.Regex {
					out = append(out, toLetters(s))
					continue
				}
				for _, w := range gpt2.isolated(s) {
					out = append(out, toLetters(w))
				}
			}
			return out
		}, nil
	case "Split":
		var p struct {
			Type    string `json:"type"`
			Pattern struct {
				Regex  *string
				String *string
			} `json:"pattern"`
			Behavior string `json:"behavior"`
			Invert   bool   `json:"invert"`
		}
		if err := strict(raw, &p); err != nil {
			return nil, err
		}
		if p.Behavior != "Isolated" && p.Behavior != "Removed" {
			return nil, fmt.Errorf("behavior %q is not supported", short(p.Behavior))
		}
		var source string
		switch {
		case p.Pattern.Regex != nil:
			source = *p.Pattern.Regex
		case p.Pattern.String != nil:
			source = regexp.QuoteMeta(*p.Pattern.String)
		}
		pattern, err := newPattern(source)
		if err != nil {
			return nil, fmt.Errorf("pattern: %w", err)
		}
		return func(pieces []string) (out []string) {
			for _, s := range pieces {
				out = append(out, pattern.split(s, p.Invert, p.Behavior == "Removed")...)
			}
			return out
		}, nil
	case "WhitespaceSplit":
		return func(pieces []string) (out []string) {
			for _, s := range pieces {
				out = append(out, strings.FieldsFunc(s, space)...)
			}
			return out
		}, strict(raw, &bare)
	case "BertPreTokenizer":
		return func(pieces []string) (out []string) {
			for _, s := range pieces {
				for _, w := range strings.FieldsFunc(s, space) {
					from := 0
					for i, r := range w {
						if punctuation(r) {
							if i > from {
								out = append(out, w[from:i])
							}
							from = i + utf8.RuneLen(r)
							out = append(out, w[i:from])
						}
					}
					out = append(out, w[from:])
				}
			}
			return out
		}, strict(raw, &bare)
	}
	return nil, unsupported(kind)
}

// pattern is a regular expression of a tokenizer. Go's have no lookahead, but one is in almost every tokenizer, at the
// end: \s+(?!\S)|\s+, spaces but for the last before a word. Of what is left, it matches as Oniguruma does: of
// alternatives that begin at the same place, the first.
type pattern struct {
	re     *regexp.Regexp
	spaces int // the group of spaces at the end; 0: none
}

const lastSpace = `|\s+(?!\S)|\s+`

// whiteSpace are the characters of \s, in a class.
const whiteSpace = `\t-\r \x{85}\p{Z}`

func newPattern(source string) (*pattern, error) {
	p := &pattern{}
	rest, spaces := strings.CutSuffix(source, lastSpace)
	var b strings.Builder
	class := false
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\\' && i+1 < len(rest):
			i++
			switch e := rest[i]; {
			case e == 's' && class:
				b.WriteString(whiteSpace)
			case e == 's':
				b.WriteString("[" + whiteSpace + "]")
			case strings.IndexByte("pPrntvf", e) >= 0, e < utf8.RuneSelf && punctuation(rune(e)):
				b.WriteString(rest[i-1 : i+1])
			default:
				return nil, fmt.Errorf(`\%c of the regular expression is not supported`, e)
			}
		case c == '[':
			if class {
				return nil, errors.New("a class within a class of the regular expression is not supported")
			}
			class = true
			b.WriteByte(c)
		case c == ']':
			class = false
			b.WriteByte(c)
		case c == '&' && class:
			return nil, errors.New("& in a class of the regular expression is not supported")
		case (c == '^' || c == '$' || c == '.') && !class:
			return nil, fmt.Errorf("%c of the regular expression is not supported", c)
		default:
			b.WriteByte(c)
		}
	}
	expression := b.String()
	if spaces {
		expression = "(?:" + expression + ")|([" + whiteSpace + "]+)"
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("the regular expression %q is not supported: %s", short(source), strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if p.re = re; spaces {
		p.spaces = re.NumSubexp()
	}
	if re.MatchString("") {
		return nil, errors.New("the regular expression matches nothing at all, which is not supported")
	}
	return p, nil
}

// matches are the places that match, from and to.
func (p *pattern) matches(s string) (out [][2]int) {
	for at := 0; at < len(s); {
		m := p.re.FindStringSubmatchIndex(s[at:])
		if m == nil {
			break
		}
		from, to := at+m[0], at+m[1]
		if p.spaces > 0 && m[2*p.spaces] >= 0 && to < len(s) {
			if _, last := utf8.DecodeLastRuneInString(s[from:to]); to-last > from {
				to -= last
			}
		}
		out = append(out, [2]int{from, to})
		at = to
	}
	return out
}

// isolated cuts a text at the ends of each match.
func (p *pattern) isolated(s string) []string { return p.split(s, false, false) }

// split cuts a text; removed leaves the matches out, or with invert what is between them.
func (p *pattern) split(s string, invert, removed bool) (out []string) {
	from := 0
	put := func(part string, match bool) {
		if part != "" && !(removed && match != invert) {
			out = append(out, part)
		}
	}
	for _, m := range p.matches(s) {
		put(s[from:m[0]], false)
		put(s[m[0]:m[1]], true)
		from = m[1]
	}
	put(s[from:], false)
	return out
}

// letters are the characters that stand for bytes in a byte-level vocabulary: those that can be seen for themselves, the
// others from 256 on.
var letters, bytesOfLetters = func() (to [256]rune, from map[rune]byte) {
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
}()

func toLetters(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(letters[s[i]])
	}
	return b.String()
}

// decoderOf is the decoder of the file.
func decoderOf(raw json.RawMessage) (decoder, error) {
	if none(raw) {
		return func(tokens []string) string { return strings.Join(tokens, " ") }, nil
	}
	kind, err := kindOf(raw)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "ByteLevel":
		var b struct {
			Type   string `json:"type"`
			Prefix bool   `json:"add_prefix_space"`
			Trim   bool   `json:"trim_offsets"`
			Regex  bool   `json:"use_regex"`
		}
		return func(tokens []string) string {
			var out []byte
			for _, t := range tokens {
				before := len(out)
				for _, r := range t {
					b, ok := bytesOfLetters[r]
					if !ok { // an added token that is a text
						out = append(out[:before], t...)
						break
					}
					out = append(out, b)
				}
			}
			return replaceInvalid(out)
		}, strict(raw, &b)
	case "WordPiece":
		var w struct {
			Type    string `json:"type"`
			Prefix  string `json:"prefix"`
			Cleanup bool   `json:"cleanup"`
		}
		if err := strict(raw, &w); err != nil {
			return nil, err
		}
		return func(tokens []string) string {
			var b strings.Builder
			for i, t := range tokens {
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
				b.WriteString(t)
			}
			return b.String()
		}, nil
	}
	return nil, unsupported(kind)
}

var cleanups = [][2]string{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}

// replaceInvalid puts U+FFFD in the place of each longest part that begins a character and does not end it, as Unicode
// recommends.
func replaceInvalid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			for n < len(b) && !utf8.FullRune(b[:n+1]) {
				n++
			}
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}
