package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

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

const leafUnit = 1 << 31 // an unit with this bit is a leaf; the rest of it is the value

// charsmapOf reads a normalizer Precompiled. Every unit is checked, so that no text leads out of the table.
func charsmapOf(raw json.RawMessage) (normalizer, error) {
	var p struct {
		Type string `json:"type"`
		Map  string `json:"precompiled_charsmap"`
	}
	if err := strict(raw, &p); err != nil {
		return nil, err
	}
	content, err := base64.StdEncoding.DecodeString(p.Map)
	if err != nil {
		return nil, fmt.Errorf("precompiled_charsmap: %w", err)
	}
	if len(content) < 4 {
		return nil, errors.New("precompiled_charsmap: it ends early")
	}
	size := int64(binary.LittleEndian.Uint32(content))
	content = content[4:]
	if size > int64(len(content)) || size%1024 != 0 || size == 0 {
		return nil, fmt.Errorf("precompiled_charsmap: a trie of %d bytes among %d; want whole blocks of 1024", size, len(content))
	}
	m := &charsmap{units: make([]uint32, size/4), texts: string(content[size:])}
	if !utf8.ValidString(m.texts) {
		return nil, errors.New("precompiled_charsmap: its strings are not UTF-8")
	}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(content[4*i:])
	}
	for i, u := range m.units {
		if u&leafUnit != 0 {
			continue
		}
		base := i ^ unitOffset(u)
		if base|0xff >= len(m.units) {
			return nil, fmt.Errorf("precompiled_charsmap: unit %d leads out of the trie", i)
		}
		if at := int(m.units[base] &^ leafUnit); hasLeaf(u) && (at >= len(m.texts) || !utf8.RuneStart(m.texts[at])) {
			return nil, fmt.Errorf("precompiled_charsmap: unit %d has no text", i)
		}
	}
	return m.normalize, nil
}

// find is the text for the first characters of s that the table has, the fewest.
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
