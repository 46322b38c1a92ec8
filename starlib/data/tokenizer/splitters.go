package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"drun/internal/try"
)

// splitterOf makes a pre-tokenizer from the file's description; nil if there is none.
func splitterOf(raw json.RawMessage, depth int) (_ splitter, err error) {
	defer try.Caught(&err)
	kind := try.To(kindOf(raw))
	switch kind {
	case "":
		return nil, nil
	case "Sequence":
		all, err := sequence(raw, "pretokenizers", depth, splitterOf)
		return func(pieces []string, start bool) []string {
			for _, p := range all {
				pieces = p(pieces, start)
			}
			return pieces
		}, err
	case "Metaspace":
		return metaspaceOf(raw, depth)
	case "ByteLevel":
		b := struct {
			Type   string `json:"type"`
			Prefix bool   `json:"add_prefix_space"`
			Trim   bool   `json:"trim_offsets"`
			Regex  bool   `json:"use_regex"`
		}{Regex: true}
		try.Ok(strict(raw, &b))
		gpt2 := try.To(newPattern(`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`))
		return eachPiece(func(s string) []string {
			if b.Prefix && !strings.HasPrefix(s, " ") {
				s = " " + s
			}
			words := []string{s}
			if b.Regex {
				words = gpt2.split(s, false, "Isolated")
			}
			for i, w := range words {
				words[i] = toLetters(w)
			}
			return words
		}), nil
	case "Split":
		var p struct {
			Type     string        `json:"type"`
			Pattern  patternSource `json:"pattern"`
			Behavior string        `json:"behavior"`
			Invert   bool          `json:"invert"`
		}
		try.Ok(strict(raw, &p))
		try.FailIf(!slices.Contains([]string{"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"}, p.Behavior), "behavior %q is not supported", short(p.Behavior))
		pattern := try.To(p.Pattern.compile())
		return eachPiece(func(s string) []string { return pattern.split(s, p.Invert, p.Behavior) }), nil
	case "WhitespaceSplit":
		return eachPiece(func(s string) []string { return strings.FieldsFunc(s, space) }), bare(raw)
	case "BertPreTokenizer":
		return eachPiece(func(s string) []string { return strings.FieldsFunc(spaced(s, punctuation), space) }), bare(raw)
	}
	return nil, unsupported(kind)
}

// eachPiece makes a splitter that cuts each piece by itself.
func eachPiece(cut func(s string) []string) splitter {
	return func(pieces []string, _ bool) (out []string) {
		for _, s := range pieces {
			out = append(out, cut(s)...)
		}
		return out
	}
}

// metaspaceOf makes a splitter that replaces spaces by a special character and cuts before each: SentencePiece's words.
func metaspaceOf(raw json.RawMessage, depth int) (_ splitter, err error) {
	defer try.Caught(&err)
	m := try.To(readMetaspace(raw))
	if m.Scheme == "first" && depth > 0 { // a splitter before it may drop the start of the text
		return nil, errors.New("prepend_scheme \"first\" in a Sequence is not supported")
	}
	space := &pattern{text: m.Replacement}
	return func(pieces []string, start bool) (out []string) {
		for i, s := range pieces {
			s = strings.ReplaceAll(s, " ", m.Replacement)
			if (m.Scheme == "always" || m.Scheme == "first" && start && i == 0) && !strings.HasPrefix(s, m.Replacement) {
				s = m.Replacement + s
			}
			if m.split() {
				out = append(out, space.split(s, false, "MergedWithNext")...)
			} else {
				out = append(out, s)
			}
		}
		return out
	}, nil
}

// metaspace is the description of a pre-tokenizer, or of a decoder.
type metaspace struct {
	Type        string `json:"type"`
	Replacement string `json:"replacement"`
	Scheme      string `json:"prepend_scheme"`
	Split       *bool  `json:"split"`
	Prefix      *bool  `json:"add_prefix_space"` // as older files have it
	Text        string `json:"str_rep"`          // the replacement again, in older files
}

func (m *metaspace) split() bool { return m.Split == nil || *m.Split }

func readMetaspace(raw json.RawMessage) (_ *metaspace, err error) {
	defer try.Caught(&err)
	m := &metaspace{Scheme: "always"}
	try.Ok(strict(raw, m))
	try.FailIf(utf8.RuneCountInString(m.Replacement) != 1, "replacement: %q: want one character", short(m.Replacement))
	if m.Prefix != nil && !*m.Prefix {
		try.FailIf(m.Scheme == "first", "add_prefix_space = false contradicts prepend_scheme")
		m.Scheme = "never"
	}
	try.FailIf(m.Scheme != "always" && m.Scheme != "first" && m.Scheme != "never", "prepend_scheme %q: want always, first or never", short(m.Scheme))
	return m, nil
}

// pattern is a regular expression of a tokenizer. Go's have no lookahead, but almost every tokenizer ends with one:
// \s+(?!\S)|\s+, spaces except the last before a word. The rest matches as in Oniguruma: of alternatives that begin at
// the same position, the first.
type pattern struct {
	text   string // matched literally, without re
	re     *regexp.Regexp
	spaces int // the group of spaces at the end; 0: none
}

type patternSource struct {
	Regex  *string
	String *string
}

func (s patternSource) compile() (_ *pattern, err error) {
	defer try.Caught(&err)
	switch {
	case s.Regex != nil && s.String == nil:
		p, err := newPattern(*s.Regex)
		try.FailIf(err != nil, "pattern: %w", err)
		return p, nil
	case s.Regex != nil || s.String == nil || *s.String == "":
		return nil, errors.New("pattern: want a Regex or a String")
	}
	return &pattern{text: *s.String}, nil
}

const lastSpace = `|\s+(?!\S)|\s+`

// whiteSpace is \s, written for use within a character class.
const whiteSpace = `\t-\r \x{85}\p{Z}`

func newPattern(source string) (_ *pattern, err error) {
	defer try.Caught(&err)
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
				return nil, fmt.Errorf(`\%c in the regular expression is not supported`, e)
			}
		case c == '[':
			try.FailIf(class, "a class within a class in the regular expression is not supported")
			class = true
			b.WriteByte(c)
		case c == ']':
			class = false
			b.WriteByte(c)
		case c == '&' && class:
			return nil, errors.New("& in a class in the regular expression is not supported")
		case (c == '^' || c == '$' || c == '.') && !class:
			return nil, fmt.Errorf("%c in the regular expression is not supported", c)
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
		try.Fail("the regular expression %q is not supported: %s", short(source), strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if p.re = re; spaces {
		p.spaces = re.NumSubexp()
	}
	try.FailIf(re.MatchString(""), "the regular expression matches the empty string, which is not supported")
	return p, nil
}

// matches yields the ranges that match, as from and to.
func (p *pattern) matches(s string) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for at := 0; at < len(s); {
			from, to := p.next(s, at)
			if from < 0 || !yield(from, to) {
				return
			}
			at = to
		}
	}
}

// next returns the first match from a position on; -1 if there is none.
func (p *pattern) next(s string, at int) (from, to int) {
	if p.re == nil {
		i := strings.Index(s[at:], p.text)
		if i < 0 {
			return -1, -1
		}
		return at + i, at + i + len(p.text)
	}
	m := p.re.FindStringSubmatchIndex(s[at:])
	if m == nil {
		return -1, -1
	}
	from, to = at+m[0], at+m[1]
	if p.spaces > 0 && m[2*p.spaces] >= 0 && to < len(s) {
		if _, last := utf8.DecodeLastRuneInString(s[from:to]); to-last > from {
			to -= last
		}
	}
	return from, to
}

// split cuts a text into the matches and what is between them, whose roles invert swaps. Then Removed drops the matches,
// Contiguous joins adjacent matches, and MergedWithPrevious and MergedWithNext join matches to what precedes or follows them.
func (p *pattern) split(s string, invert bool, behavior string) (out []string) {
	type part struct {
		begin, end int
		match      bool
	}
	var parts []part
	from := 0
	put := func(begin, end int, match bool) {
		if begin < end {
			parts = append(parts, part{begin, end, match != invert})
		}
	}
	for begin, end := range p.matches(s) {
		put(from, begin, false)
		put(begin, end, true)
		from = end
	}
	put(from, len(s), false)
	for i, part := range parts {
		before, joined := i > 0 && parts[i-1].match, false
		switch {
		case behavior == "Removed" && part.match:
			continue
		case i == 0:
		case behavior == "Contiguous":
			joined = part.match == before
		case behavior == "MergedWithPrevious":
			joined = part.match && !before
		case behavior == "MergedWithNext":
			joined = before && !part.match
		}
		if joined {
			last := len(out) - 1
			out[last] = s[part.begin-len(out[last]) : part.end]
			continue
		}
		out = append(out, s[part.begin:part.end])
	}
	return out
}
