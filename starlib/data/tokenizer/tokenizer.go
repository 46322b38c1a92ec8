// Package tokenizer turns text into numbers and back, as a Hugging Face tokenizer.json says: BPE (GPT-2, Llama),
// Unigram (T5), WordPiece (BERT), and their parts. Anything else that a file asks for is an error: a different number
// for a word would go unnoticed. The recipes' module data calls it.
package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"drun/internal/try"
)

// Tokenizer is what a tokenizer.json describes. It is immutable, so threads may share it.
type Tokenizer struct {
	raw, normalized added // tokens that are matched before normalization, and after it
	normalize       normalizer
	split           splitter
	model           model
	template        []int // what encode returns: ids, and the constant text where those of the text go
	decode          decoder
	tokens          map[int]string
	shown           map[int]string // what decode returns for added tokens that normalization changes
	ids             map[string]int
	special         map[int]bool
	size            int
}

// text stands for the text in a template.
const text = -1

// model turns a word into numbers.
type model interface {
	encode(word string, out []int) ([]int, error)
}

type (
	normalizer func(s string) string
	splitter   func(pieces []string, start bool) []string // start: the first piece begins the text
	decoder    func(tokens []string) []string             // the results, joined, are the text
)

// file is a tokenizer.json.
type file struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []token         `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// token is an added token, which is found in a text whatever its context.
type token struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LeftStrip  bool   `json:"lstrip"`
	RightStrip bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// strict decodes JSON; an unknown name is an error.
func strict(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("unexpected data after the value")
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func none(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// typed is a part of the file that has only a type.
type typed struct {
	Type string `json:"type"`
}

// kindOf returns the type of a part of the file, "" if the file lacks the part.
func kindOf(raw json.RawMessage) (string, error) {
	if none(raw) {
		return "", nil
	}
	var k typed
	if err := json.Unmarshal(raw, &k); err != nil || k.Type == "" {
		return "", errors.New("want an object with a type")
	}
	return k.Type, nil
}

// bare returns an error if a part has anything besides its type.
func bare(raw json.RawMessage) error { return strict(raw, &typed{}) }

// maxID bounds the numbers of tokens.
const maxID = 1<<31 - 1

// Parse reads a tokenizer.json.
func Parse(content []byte) (_ *Tokenizer, err error) {
	defer try.Caught(&err)
	var f file
	err = strict(content, &f)
	try.FailIf(err != nil, "not a tokenizer.json: %w", err)
	try.FailIf(!none(f.Truncation), "truncation: it is not supported; set it to null, and cut the ids")
	try.FailIf(!none(f.Padding), "padding: it is not supported; set it to null, and pad with data.pad_collate")
	t := &Tokenizer{tokens: map[int]string{}, shown: map[int]string{}, special: map[int]bool{}}
	t.normalize, err = normalizerOf(f.Normalizer, 0)
	try.FailIf(err != nil, "normalizer: %w", err)
	t.split, err = splitterOf(f.PreTokenizer, 0)
	try.FailIf(err != nil, "pre_tokenizer: %w", err)
	t.decode, err = decoderOf(f.Decoder, 0)
	try.FailIf(err != nil, "decoder: %w", err)
	try.FailIf(none(f.Model), "model: there is none")
	t.model, t.ids, err = modelOf(f.Model)
	try.FailIf(err != nil, "model: %w", err)
	for s, id := range t.ids {
		if err := t.name(id, s); err != nil {
			return nil, fmt.Errorf("model: vocab: %w", err)
		}
	}
	for i, a := range f.AddedTokens {
		err := t.add(a)
		try.FailIf(err != nil, "added_tokens: %d: %w", i, err)
	}
	t.size = len(t.tokens)
	t.template, err = t.templateOf(f.PostProcessor, 0)
	try.FailIf(err != nil, "post_processor: %w", err)
	return t, nil
}

func (t *Tokenizer) name(id int, s string) error {
	if id < 0 || id > maxID {
		return fmt.Errorf("%q has the id %d: want from 0 to %d", short(s), id, maxID)
	}
	if other, twice := t.tokens[id]; twice && other != s {
		return fmt.Errorf("%q and %q have the same id, %d", short(other), short(s), id)
	}
	t.tokens[id] = s
	return nil
}

func (t *Tokenizer) add(a token) (err error) {
	defer try.Caught(&err)
	try.FailIf(a.Content == "", "an empty token")
	try.FailIf(a.SingleWord, "%q: single_word is not supported", short(a.Content))
	id, known := t.ids[a.Content]
	try.FailIf(known && id != a.ID, "%q has the id %d, and %d in the model", short(a.Content), a.ID, id)
	try.Ok(t.name(a.ID, a.Content))
	t.ids[a.Content] = a.ID
	if a.Special {
		t.special[a.ID] = true
	}
	if !a.Normalized {
		t.raw.add(a)
		return nil
	}
	if t.normalize != nil {
		a.Content = t.normalize(a.Content)
		try.FailIf(a.Content == "", "a token that normalization leaves empty")
		t.shown[a.ID] = a.Content
	}
	t.normalized.add(a)
	return nil
}

// templateOf reads the tokens that are put around a text.
func (t *Tokenizer) templateOf(raw json.RawMessage, depth int) (_ []int, err error) {
	defer try.Caught(&err)
	kind := try.To(kindOf(raw))
	switch kind {
	case "", "ByteLevel": // ByteLevel only changes offsets
		return []int{text}, nil
	case "Sequence":
		all, err := sequence(raw, "processors", depth, t.templateOf)
		template := []int{text}
		for _, outer := range all {
			var next []int
			for _, id := range outer {
				if id == text {
					next = append(next, template...)
				} else {
					next = append(next, id)
				}
			}
			template = next
		}
		return template, err
	case "BertProcessing", "RobertaProcessing":
		var p struct {
			Type           string `json:"type"`
			Sep            []any  `json:"sep"`
			Cls            []any  `json:"cls"`
			TrimOffsets    bool   `json:"trim_offsets"`
			AddPrefixSpace bool   `json:"add_prefix_space"`
		}
		try.Ok(strict(raw, &p))
		var ids [2]int
		for i, pair := range [][]any{p.Cls, p.Sep} {
			try.FailIf(len(pair) != 2, "want a token and its id for cls and sep")
			id, ok := pair[1].(float64)
			try.FailIf(!ok || id != float64(int(id)) || t.tokens[int(id)] == "", "no token has the id %v", pair[1])
			ids[i] = int(id)
		}
		return []int{ids[0], text, ids[1]}, nil
	case "TemplateProcessing":
		type piece struct {
			ID     string `json:"id"`
			TypeID int    `json:"type_id"`
		}
		var p struct {
			Type   string `json:"type"`
			Single []struct {
				SpecialToken *piece
				Sequence     *piece
			} `json:"single"`
			Pair          json.RawMessage `json:"pair"`
			SpecialTokens map[string]struct {
				ID     string   `json:"id"`
				IDs    []int    `json:"ids"`
				Tokens []string `json:"tokens"`
			} `json:"special_tokens"`
		}
		try.Ok(strict(raw, &p))
		var template []int
		found := false
		for i, one := range p.Single {
			switch {
			case one.Sequence != nil && one.Sequence.ID == "A" && !found:
				found = true
				template = append(template, text)
			case one.SpecialToken != nil:
				s, ok := p.SpecialTokens[one.SpecialToken.ID]
				try.FailIf(!ok, "single: %d: %q is not in special_tokens", i, short(one.SpecialToken.ID))
				for _, id := range s.IDs {
					_, ok := t.tokens[id]
					try.FailIf(!ok, "special_tokens: no token has the id %d", id)
				}
				template = append(template, s.IDs...)
			default:
				return nil, fmt.Errorf("single: %d: want a special token or the sequence A, once", i)
			}
		}
		try.FailIf(!found, "single: there is no sequence A")
		return template, nil
	}
	return nil, unsupported(kind)
}

// maxDepth is how deeply sequences of sequences may nest.
const maxDepth = 20

// sequence reads the parts of a Sequence, which are in the field called name.
func sequence[T any](raw json.RawMessage, name string, depth int, of func(raw json.RawMessage, depth int) (T, error)) (_ []T, err error) {
	defer try.Caught(&err)
	var fields map[string]json.RawMessage
	var list []json.RawMessage
	try.Ok(strict(raw, &fields))
	try.FailIf(depth >= maxDepth, "sequences are nested more than %d deep", maxDepth)
	for field := range fields {
		try.FailIf(field != "type" && field != name, "unknown field %q", short(field))
	}
	err = json.Unmarshal(fields[name], &list)
	try.FailIf(err != nil || list == nil, "%s: want a list", name)
	var all []T
	for i, r := range list {
		try.FailIf(none(r), "%s: %d: there is none", name, i)
		part, err := of(r, depth+1)
		try.FailIf(err != nil, "%s: %d: %w", name, i, err)
		all = append(all, part)
	}
	return all, nil
}

func unsupported(kind string) error { return fmt.Errorf("type %q is not supported", short(kind)) }

func short(s string) string {
	if len(s) > 60 {
		s = strings.ToValidUTF8(s[:57], "") + "..."
	}
	return s
}

// Size returns the number of tokens, including added ones.
func (t *Tokenizer) Size() int { return t.size }

func (t *Tokenizer) ID(token string) (int, bool) {
	id, ok := t.ids[token]
	return id, ok
}

func (t *Tokenizer) Token(id int) (string, bool) {
	s, ok := t.tokens[id]
	return s, ok
}

// Special returns the ids of the special tokens, in order.
func (t *Tokenizer) Special() []int { return slices.Sorted(maps.Keys(t.special)) }

// Encode returns a text's ids; with special, the template's tokens are put around them.
func (t *Tokenizer) Encode(s string, special bool) (_ []int, err error) {
	defer try.Caught(&err)
	try.FailIf(!utf8.ValidString(s), "the text is not UTF-8")
	out, err := t.encode(s)
	if err != nil || !special {
		return out, err
	}
	var all []int
	for _, id := range t.template {
		if id == text {
			all = append(all, out...)
		} else {
			all = append(all, id)
		}
	}
	return all, nil
}

func (t *Tokenizer) encode(s string) (out []int, err error) {
	defer try.Caught(&err)
	for i, p := range t.raw.split(s) {
		if p.id >= 0 {
			out = append(out, p.id)
			continue
		}
		if t.normalize != nil {
			p.text = t.normalize(p.text)
		}
		for k, p := range t.normalized.split(p.text) {
			if p.id >= 0 {
				out = append(out, p.id)
				continue
			}
			words := []string{p.text}
			if t.split != nil {
				words = t.split(words, i == 0 && k == 0)
			}
			for _, w := range words {
				if w == "" {
					continue
				}
				out = try.To(t.model.encode(w, out))
			}
		}
	}
	return out, nil
}

// Decode returns the text of ids; with skip, without the special tokens.
func (t *Tokenizer) Decode(ids []int, skip bool) (string, error) {
	var tokens []string
	for i, id := range ids {
		s, ok := t.tokens[id]
		if !ok {
			return "", fmt.Errorf("element %d: no token has the id %d", i, id)
		}
		if other, changed := t.shown[id]; changed {
			s = other
		}
		if !skip || !t.special[id] {
			tokens = append(tokens, s)
		}
	}
	return strings.Join(t.decode(tokens), ""), nil
}

// added are tokens that are found literally in a text.
type added struct {
	by map[byte][]token // by their first byte, the longest first
}

func (a *added) add(t token) {
	if a.by == nil {
		a.by = map[byte][]token{}
	}
	list := append(a.by[t.Content[0]], t)
	slices.SortStableFunc(list, func(a, b token) int { return len(b.Content) - len(a.Content) })
	a.by[t.Content[0]] = list
}

// piece is a token, or the text between tokens.
type piece struct {
	id   int // -1: a text
	text string
}

// split finds the tokens: always the leftmost one, and of those that begin there the longest.
func (a *added) split(s string) (out []piece) {
	if s == "" {
		return nil
	}
	from := 0
	for at := 0; at < len(s) && a.by != nil; {
		var found *token
		for i, t := range a.by[s[at]] {
			if strings.HasPrefix(s[at:], t.Content) {
				found = &a.by[s[at]][i]
				break
			}
		}
		if found == nil {
			at++
			continue
		}
		begin, end := at, at+len(found.Content)
		if found.LeftStrip {
			begin = from + len(strings.TrimRightFunc(s[from:at], space))
		}
		if found.RightStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], space))
		}
		if begin > from {
			out = append(out, piece{-1, s[from:begin]})
		}
		out = append(out, piece{found.ID, ""})
		from, at = end, end
	}
	if from < len(s) {
		out = append(out, piece{-1, s[from:]})
	}
	return out
}
