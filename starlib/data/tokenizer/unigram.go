package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"drun/internal/try"
)

// unigram is SentencePiece's model: of all ways to cut a word into tokens the most probable one (Kudo 2018), found by
// Viterbi's algorithm.
type unigram struct {
	ids     map[string]int
	scores  []float64 // of the tokens, logarithms of probabilities
	longest int       // bytes of a token
	unk     int       // -1: none
	bytes   bool      // text without a token is written as the tokens of its bytes
	worst   float64   // the score of a character without a token
}

// unknownPenalty is by how much a character without a token is worse than the worst token.
const unknownPenalty = 10

func unigramOf(raw json.RawMessage) (_ model, _ map[string]int, err error) {
	defer try.Caught(&err)
	var u struct {
		Type  string               `json:"type"`
		Unk   *int                 `json:"unk_id"`
		Vocab [][2]json.RawMessage `json:"vocab"`
		Bytes bool                 `json:"byte_fallback"`
	}
	try.Ok(strict(raw, &u))
	try.FailIf(len(u.Vocab) == 0, "vocab: it is empty")
	m := &unigram{ids: make(map[string]int, len(u.Vocab)), unk: -1, bytes: u.Bytes, worst: math.Inf(1)}
	if u.Unk != nil {
		m.unk = *u.Unk
		try.FailIf(m.unk < 0 || m.unk >= len(u.Vocab), "unk_id = %d: the vocab has %d tokens", m.unk, len(u.Vocab))
	}
	m.scores = make([]float64, len(u.Vocab))
	for id, pair := range u.Vocab {
		var s string
		if json.Unmarshal(pair[0], &s) != nil || json.Unmarshal(pair[1], &m.scores[id]) != nil || none(pair[1]) {
			return nil, nil, fmt.Errorf("vocab: %d: want a token and a number", id)
		}
		if other, twice := m.ids[s]; twice {
			return nil, nil, fmt.Errorf("vocab: %d: %q is already there, as %d", id, short(s), other)
		}
		m.ids[s] = id
		m.worst = min(m.worst, m.scores[id])
		m.longest = max(m.longest, len(s))
	}
	m.worst -= unknownPenalty
	return m, m.ids, nil
}

// step is the best path to a position in a word.
type step struct {
	score float64
	from  int // where its last token begins; -1: none
	known bool
}

func (m *unigram) encode(word string, out []int) ([]int, error) {
	best := make([]step, len(word)+1)
	for i := range best {
		best[i].from = -1
	}
	for at := 0; at < len(word); {
		_, size := utf8.DecodeRuneInString(word[at:])
		here, alone := best[at].score, false
		reach := func(length int, score float64, known bool) {
			if to := &best[at+length]; to.from < 0 || here+score > to.score {
				*to = step{here + score, at, known}
			}
		}
		for end := at + size; end <= min(len(word), at+m.longest); end++ {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				continue
			}
			if id, ok := m.ids[word[at:end]]; ok {
				reach(end-at, m.scores[id], true)
				alone = alone || end == at+size
			}
		}
		if !alone {
			if m.unk < 0 {
				return nil, fmt.Errorf("there is no token for %q, and no unk_id", word[at:at+size])
			}
			reach(size, m.worst, false)
		}
		at += size
	}
	// Back from the end; consecutive characters without a token become one.
	var parts []string
	for end := len(word); end > 0; {
		begin := best[end].from
		if !m.known(best[end], word[begin:end]) {
			for begin > 0 && !m.known(best[begin], word[best[begin].from:begin]) {
				begin = best[begin].from
			}
		}
		parts = append(parts, word[begin:end])
		end = begin
	}
	for _, part := range slices.Backward(parts) {
		out = m.number(part, out)
	}
	return out, nil
}

// known reports whether the last token of a path is a real one, not that for unknown text.
func (m *unigram) known(s step, token string) bool { return s.known && m.ids[token] != m.unk }

// number appends the ids of a part of a word.
func (m *unigram) number(part string, out []int) []int {
	if id, ok := m.ids[part]; ok {
		return append(out, id)
	}
	if m.bytes {
		if ids, ok := bytesOf(m.ids, part); ok {
			return append(out, ids...)
		}
	}
	return append(out, m.unk)
}

// bytesOf returns the tokens of a text's bytes; false if the vocabulary lacks one.
func bytesOf(vocab map[string]int, s string) (ids []int, ok bool) {
	for i := range len(s) {
		id, ok := vocab[byteToken(s[i])]
		if !ok {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, true
}
