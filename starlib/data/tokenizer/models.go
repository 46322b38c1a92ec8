package tokenizer

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"drun/internal/try"
)

// bpe merges neighbours, in the order in which training merged them.
type bpe struct {
	vocab  map[string]int
	merges map[[2]int]merge
	unk    int // -1: none
	fuse   bool
	whole  bool // a word that is a token is taken whole
	bytes  bool // a character without a token is written as the tokens of its bytes
}

type merge struct{ rank, id int }

// wordPiece repeatedly takes the longest token that the rest of a word begins with.
type wordPiece struct {
	vocab   map[string]int
	unk     int
	prefix  string // of tokens that do not begin a word
	longest int    // characters in a word
}

func modelOf(raw json.RawMessage) (_ model, _ map[string]int, err error) {
	defer try.Caught(&err)
	kind := try.To(kindOf(raw))
	switch kind {
	case "BPE":
		return bpeOf(raw)
	case "Unigram":
		return unigramOf(raw)
	case "WordPiece":
		var w struct {
			Type    string         `json:"type"`
			Unk     string         `json:"unk_token"`
			Prefix  string         `json:"continuing_subword_prefix"`
			Longest int            `json:"max_input_chars_per_word"`
			Vocab   map[string]int `json:"vocab"`
		}
		try.Ok(strict(raw, &w))
		unk, ok := w.Vocab[w.Unk]
		try.FailIf(!ok, "unk_token: %q is not in the vocab", short(w.Unk))
		try.FailIf(w.Longest < 1 || w.Longest > 10000, "max_input_chars_per_word = %d: want from 1 to 10000", w.Longest)
		return &wordPiece{w.Vocab, unk, w.Prefix, w.Longest}, w.Vocab, nil
	}
	return nil, nil, unsupported(kind)
}

func bpeOf(raw json.RawMessage) (_ model, _ map[string]int, err error) {
	defer try.Caught(&err)
	var b struct {
		Type         string            `json:"type"`
		Dropout      *float64          `json:"dropout"`
		Unk          *string           `json:"unk_token"`
		Prefix       *string           `json:"continuing_subword_prefix"`
		Suffix       *string           `json:"end_of_word_suffix"`
		Fuse         bool              `json:"fuse_unk"`
		ByteFallback bool              `json:"byte_fallback"`
		IgnoreMerges bool              `json:"ignore_merges"`
		Vocab        map[string]int    `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
	}
	try.Ok(strict(raw, &b))
	switch {
	case b.Dropout != nil && *b.Dropout != 0:
		return nil, nil, errors.New("dropout is not supported")
	case b.Prefix != nil && *b.Prefix != "":
		return nil, nil, errors.New("continuing_subword_prefix is not supported in BPE")
	case b.Suffix != nil && *b.Suffix != "":
		return nil, nil, errors.New("end_of_word_suffix is not supported")
	}
	m := &bpe{vocab: b.Vocab, merges: make(map[[2]int]merge, len(b.Merges)), unk: -1, fuse: b.Fuse, whole: b.IgnoreMerges, bytes: b.ByteFallback}
	if b.Unk != nil {
		id, ok := b.Vocab[*b.Unk]
		try.FailIf(!ok, "unk_token: %q is not in the vocab", short(*b.Unk))
		m.unk = id
	}
	for rank, raw := range b.Merges {
		var pair []string
		if json.Unmarshal(raw, &pair) != nil {
			var line string
			if err := json.Unmarshal(raw, &line); err != nil {
				return nil, nil, fmt.Errorf("merges: %d: want two tokens", rank)
			}
			pair = strings.Split(line, " ")
		}
		if len(pair) != 2 {
			return nil, nil, fmt.Errorf("merges: %d: want two tokens", rank)
		}
		left, ok := b.Vocab[pair[0]]
		right, ok2 := b.Vocab[pair[1]]
		both, ok3 := b.Vocab[pair[0]+pair[1]]
		if !ok || !ok2 || !ok3 {
			return nil, nil, fmt.Errorf("merges: %d: %q and %q, and what they make, are not all in the vocab", rank, short(pair[0]), short(pair[1]))
		}
		if _, twice := m.merges[[2]int{left, right}]; twice {
			return nil, nil, fmt.Errorf("merges: %d: %q and %q appear twice", rank, short(pair[0]), short(pair[1]))
		}
		m.merges[[2]int{left, right}] = merge{rank, both}
	}
	return m, b.Vocab, nil
}

// symbol is a token of a word that is being merged; its neighbours are indices, -1 if there is none.
type symbol struct {
	id, before, after int
	gone              bool
}

// candidate is a possible merge: of the symbol at an index with the one after it.
type candidate struct {
	merge
	at          int
	left, right int // their ids; if these have changed, the candidate is obsolete
}

type candidates []candidate

func (c candidates) Len() int { return len(c) }
func (c candidates) Less(i, j int) bool {
	return c[i].rank < c[j].rank || c[i].rank == c[j].rank && c[i].at < c[j].at
}
func (c candidates) Swap(i, j int) { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)   { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}

func (m *bpe) encode(word string, out []int) ([]int, error) {
	if id, ok := m.vocab[word]; ok && m.whole {
		return append(out, id), nil
	}
	var symbols []symbol
	put := func(id int) { symbols = append(symbols, symbol{id, len(symbols) - 1, len(symbols) + 1, false}) }
	unknown := false // an unk token is due; it comes before the next known token, but after bytes
	for _, r := range word {
		id, ok := m.vocab[string(r)]
		if ok {
			if unknown {
				put(m.unk)
			}
			unknown = false
			put(id)
			continue
		}
		if m.bytes {
			if ids, ok := bytesOf(m.vocab, string(r)); ok {
				for _, id := range ids {
					put(id)
				}
				continue
			}
		}
		switch {
		case m.unk < 0:
			return nil, fmt.Errorf("there is no token for %q, and no unk_token", r)
		case unknown && !m.fuse:
			put(m.unk)
		}
		unknown = true
	}
	if unknown {
		put(m.unk)
	}
	symbols[len(symbols)-1].after = -1
	var queue candidates
	consider := func(at int) {
		if at < 0 || symbols[at].after < 0 {
			return
		}
		left, right := symbols[at].id, symbols[symbols[at].after].id
		if m, ok := m.merges[[2]int{left, right}]; ok {
			heap.Push(&queue, candidate{m, at, left, right})
		}
	}
	for at := range symbols {
		consider(at)
	}
	for len(queue) > 0 {
		c := heap.Pop(&queue).(candidate)
		s := &symbols[c.at]
		if s.gone || s.id != c.left || s.after < 0 || symbols[s.after].id != c.right {
			continue
		}
		right := &symbols[s.after]
		right.gone = true
		s.id, s.after = c.id, right.after
		if s.after >= 0 {
			symbols[s.after].before = c.at
		}
		consider(s.before)
		consider(c.at)
	}
	for at := 0; at >= 0; at = symbols[at].after {
		out = append(out, symbols[at].id)
	}
	return out, nil
}

func (m *wordPiece) encode(word string, out []int) ([]int, error) {
	if utf8.RuneCountInString(word) > m.longest {
		return append(out, m.unk), nil
	}
	before := len(out)
	for begin := 0; begin < len(word); {
		end := len(word)
		for ; end > begin; end-- {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				continue
			}
			part := word[begin:end]
			if begin > 0 {
				part = m.prefix + part
			}
			if id, ok := m.vocab[part]; ok {
				out = append(out, id)
				break
			}
		}
		if end == begin {
			return append(out[:before], m.unk), nil
		}
		begin = end
	}
	return out, nil
}
