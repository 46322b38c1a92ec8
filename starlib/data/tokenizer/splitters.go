package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// splitterOf makes a pre-tokenizer from the file's description; nil if there is none.
func splitterOf(raw json.RawMessage, depth int) (splitter, error) {
	kind, err := kindOf(raw)
	if err != nil {
		return nil, err
	}
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
		if err := strict(raw, &b); err != nil {
			return nil, err
		}
		gpt2, err := newPattern(`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`)
		if err != nil {
			return nil, err
		}
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
		if err := strict(raw, &p); err != nil {
			return nil, err
		}
		if !slices.Contains([]string{"Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"}, p.Behavior) {
			return nil, fmt.Errorf("behavior %q is not supported", short(p.Behavior))
		}
		pattern, err := p.Pattern.compile()
		if err != nil {
			return nil, err
		}
		return eachPiece(func(s string) []string { return pattern.split(s, p.Invert, p.Behavior) }), nil
	case "WhitespaceSplit":
		return eachPiece(func(s string) []string { return strings.FieldsFunc(s, space) }), bare(raw)
	case "BertPreTokenizer":
		return eachPiece(func(s string) (out []string) {
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
			return out
		}), bare(raw)
	}
	return nil, unsupported(kind)
}

// eachPiece cuts one piece after the other.
func eachPiece(cut func(s string) []string) splitter {
	return func(pieces []string, _ bool) (out []string) {
		for _, s := range pieces {
			out = append(out, cut(s)...)
		}
		return out
	}
}

// metaspaceOf replaces spaces by a special character, and cuts before each: SentencePiece's words.
func metaspaceOf(raw json.RawMessage, depth int) (splitter, error) {
	m, err := readMetaspace(raw)
	if err != nil {
		return nil, err
	}
	if m.Scheme == "first" && depth > 0 { // what the one before it leaves out moves the text's start
		return nil, errors.New("prepend_scheme \"first\" in a Sequence is not supported")
	}
	return func(pieces []string, start bool) (out []string) {
		for i, s := range pieces {
			s = strings.ReplaceAll(s, " ", m.Replacement)
			if (m.Scheme == "always" || m.Scheme == "first" && start && i == 0) && !strings.HasPrefix(s, m.Replacement) {
				s = m.Replacement + s
			}
			if !m.split() {
				out = append(out, s)
				continue
			}
			from := 0
			for at := range s {
				if at > from && strings.HasPrefix(s[at:], m.Replacement) {
					out = append(out, s[from:at])
					from = at
				}
			}
			out = append(out, s[from:])
		}
		return out
	}, nil
}

// metaspace is a pre-tokenizer, and a decoder.
type metaspace struct {
	Type        string `json:"type"`
	Replacement string `json:"replacement"`
	Scheme      string `json:"prepend_scheme"`
	Split       *bool  `json:"split"`
	Prefix      *bool  `json:"add_prefix_space"` // as older files have it
	Text        string `json:"str_rep"`          // the replacement again, in older files
}

func (m *metaspace) split() bool { return m.Split == nil || *m.Split }

func readMetaspace(raw json.RawMessage) (*metaspace, error) {
	m := &metaspace{Scheme: "always"}
	if err := strict(raw, m); err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(m.Replacement) != 1 {
		return nil, fmt.Errorf("replacement: %q: want one character", short(m.Replacement))
	}
	if m.Prefix != nil && !*m.Prefix {
		if m.Scheme == "first" {
			return nil, errors.New("add_prefix_space = false contradicts prepend_scheme")
		}
		m.Scheme = "never"
	}
	if m.Scheme != "always" && m.Scheme != "first" && m.Scheme != "never" {
		return nil, fmt.Errorf("prepend_scheme %q: want always, first or never", short(m.Scheme))
	}
	return m, nil
}
