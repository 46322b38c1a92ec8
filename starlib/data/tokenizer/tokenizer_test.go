package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// load reads a tokenizer of testdata.
func load(t testing.TB, name string) (*Tokenizer, []byte) {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	k, err := Parse(content)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return k, content
}

var names = []string{"gpt2", "llama", "roberta", "bert", "bert-cased", "plain", "t5", "xlm", "albert", "llama2"}

// Every text gets the numbers, and the numbers the text, that Hugging Face's own library gives (testdata/vectors.py).
func TestVectors(t *testing.T) {
	for _, name := range names {
		k, _ := load(t, name)
		f, err := os.Open("testdata/" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		wrong, n := 0, 0
		for lines := bufio.NewScanner(f); lines.Scan(); n++ {
			var v [6]json.RawMessage
			var text, back, whole, part string
			var ids, bare []int
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			for i, into := range []any{&text, &ids, &bare, &back, &whole, &part} {
				if err := json.Unmarshal(v[i], into); err != nil {
					t.Fatal(err)
				}
			}
			var every []int
			for i := 1; i < len(ids); i += 2 {
				every = append(every, ids[i])
			}
			got, err := k.Encode(text, true)
			gotBare, err2 := k.Encode(text, false)
			gotBack, err3 := k.Decode(ids, true)
			gotWhole, err4 := k.Decode(ids, false)
			gotPart, err5 := k.Decode(every, true)
			if err != nil || err2 != nil || err3 != nil || err4 != nil || err5 != nil || !slices.Equal(got, ids) || !slices.Equal(gotBare, bare) || gotBack != back || gotWhole != whole || gotPart != part {
				if wrong++; wrong < 6 {
					t.Errorf("%s: %q: %v %v\ngot  %v %q %q %q\nwant %v %q %q %q", name, text, err, err3, got, gotBack, gotWhole, gotPart, ids, back, whole, part)
				}
			}
		}
		f.Close()
		if wrong > 0 || n < 300 {
			t.Errorf("%s: %d of %d texts are wrong", name, wrong, n)
		}
	}
}

// What a file asks for and is not here is an error that names the place.
func TestRefused(t *testing.T) {
	_, gpt2 := load(t, "gpt2")
	_, bert := load(t, "bert")
	_, llama := load(t, "llama")
	_, t5 := load(t, "t5")
	_, xlm := load(t, "xlm")
	for _, c := range []struct {
		file          []byte
		from, to, why string
	}{
		{gpt2, `"truncation":null`, `"truncation":{"max_length":5}`, "truncation: it is not supported"},
		{gpt2, `"padding":null`, `"padding":{}`, "padding: it is not supported"},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Nmt"}`, `normalizer: type "Nmt" is not supported`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":""}`, `normalizer: precompiled_charsmap: it ends early`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"?"}`, `normalizer: precompiled_charsmap: illegal base64`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAQA/wAA"}`, `precompiled_charsmap: a trie of 4278191104 bytes in 2`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"` + charsmapOfUnit(0x400<<10) + `"}`, `precompiled_charsmap: unit 0 points outside the trie`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Precompiled","precompiled_charsmap":"` + charsmapOfUnit(1<<8) + `"}`, `precompiled_charsmap: unit 0 has no text`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Sequence"}`, `normalizer: normalizers: want a list`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[null]}`, `normalizer: normalizers: 0: there is none`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[],"x":1}`, `normalizer: unknown field "x"`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":{"type":"NFC"}}`, `normalizer: normalizers: want a list`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]}`, `normalizer: normalizers: 1: type "Nmt" is not supported`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"Replace","pattern":{},"content":""}`, `normalizer: pattern: want a Regex or a String`},
		{gpt2, `"post_processor":{`, `"post_processor":{"type":"Sequence","processors":[{"type":"None"}]},"model":{`, `post_processor: processors: 0: type "None" is not supported`},
		{gpt2, `"decoder":{`, `"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"CTC"}]},"model":{`, `decoder: decoders: 1: type "CTC" is not supported`},
		{gpt2, `"decoder":{`, `"decoder":` + strings.Repeat(`{"type":"Sequence","decoders":[`, 30) + strings.Repeat(`]}`, 30) + `,"model":{`, "sequences are nested more than 20 deep"},
		{gpt2, `"decoder":{`, `"decoder":{"type":"Strip","content":"ab","start":1,"stop":0},"model":{`, `decoder: content: "ab": want one character`},
		{gpt2, `"decoder":{`, `"decoder":{"type":"Strip","content":"a","start":-1,"stop":0},"model":{`, `decoder: start and stop: want numbers from 0`},
		{gpt2, `"normalizer":null`, `"normalizer":{"type":"NFC","x":1}`, `normalizer: unknown field "x"`},
		{gpt2, `"normalizer":null`, `"normalizer":` + strings.Repeat(`{"type":"Sequence","normalizers":[`, 30) + strings.Repeat(`]}`, 30), "sequences are nested more than 20 deep"},
		{gpt2, `"dropout":null`, `"dropout":0.1`, "model: dropout is not supported"},
		{gpt2, `"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, "model: end_of_word_suffix is not supported"},
		{gpt2, `"type":"BPE"`, `"type":"WordLevel"`, `model: type "WordLevel" is not supported`},
		{t5, `"unk_id":2`, `"unk_id":600000`, `model: unk_id = 600000: the vocab has `},
		{t5, `["</s>",0.0]`, `["<pad>",0.0]`, `model: vocab: 1: "<pad>" is already there, as 0`},
		{t5, `["</s>",0.0]`, `["</s>",null]`, `model: vocab: 1: want a token and a number`},
		{t5, `["</s>",0.0]`, `["</s>",1e999]`, `model: vocab: 1: want a token and a number`},
		{t5, `"prepend_scheme":"always"`, `"prepend_scheme":"last"`, `pre_tokenizer: prepend_scheme "last": want always, first or never`},
		{t5, `"replacement":"▁"`, `"replacement":"▁▁"`, `pre_tokenizer: replacement: "▁▁": want one character`},
		{xlm, `"prepend_scheme":"always"`, `"prepend_scheme":"first"`, `pre_tokenizer: pretokenizers: 1: prepend_scheme "first" in a Sequence is not supported`},
		{gpt2, `"single_word":false`, `"single_word":true`, `added_tokens: 0: "<|endoftext|>": single_word is not supported`},
		{gpt2, `"id":0,"content":"<|endoftext|>"`, `"id":5,"content":"<|endoftext|>"`, `added_tokens: 0: "<|endoftext|>" has the id 5, and 0 in the model`},
		{gpt2, `"!":1`, `"!":2`, `model: vocab: "`},
		{gpt2, `"!":1`, `"!":-1`, `model: vocab: "!" has the id -1`},
		{gpt2, `"merges":[`, `"merges":[["Zq","Zq"],`, `model: merges: 0: "Zq" and "Zq", and what they make, are not all in the vocab`},
		{gpt2, `"merges":[`, `"merges":["a b c",`, `model: merges: 0: want two tokens`},
		{gpt2, `{"version"`, `{"verzion"`, `not a tokenizer.json: unknown field "verzion"`},
		{gpt2, `"decoder":{"type":"ByteLevel"`, `"decoder":{"type":"CTC"`, `decoder: type "CTC" is not supported`},
		{llama, `"behavior":"Isolated"`, `"behavior":"Merged"`, `pre_tokenizer: pretokenizers: 0: behavior "Merged" is not supported`},
		{llama, `"Regex":"`, `"Regex":"(?=x)|`, `pre_tokenizer: pretokenizers: 0: pattern: the regular expression`},
		{llama, `"Regex":"`, `"Regex":"\\w+|`, `pre_tokenizer: pretokenizers: 0: pattern: \w in the regular expression is not supported`},
		{llama, `"Regex":"`, `"Regex":"x?+|`, `invalid nested repetition operator`},
		{llama, `"Regex":"`, `"Regex":"x*|`, `pattern: the regular expression matches the empty string`},
		{bert, `"unk_token":"[UNK]"`, `"unk_token":"[?]"`, `model: unk_token: "[?]" is not in the vocab`},
		{bert, `"max_input_chars_per_word":20`, `"max_input_chars_per_word":2000000`, "model: max_input_chars_per_word = 2000000"},
		{bert, `"ids":[2]`, `"ids":[222222]`, "post_processor: special_tokens: no token has the id 222222"},
		{bert, `{"Sequence":{"id":"A"`, `{"Sequence":{"id":"B"`, "post_processor: single: 1: want a special token or the sequence A, once"},
		{bert, `{"Sequence":{"id":"A","type_id":0}},`, "", "post_processor: single: there is no sequence A"},
		{bert, `{"Sequence":{"id":"A","type_id":0}},`, `{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"A","type_id":0}},`, "single: 2: want a special token or the sequence A, once"},
	} {
		if !bytes.Contains(c.file, []byte(c.from)) {
			t.Errorf("no %s in the file", c.from)
			continue
		}
		if _, err := Parse(bytes.Replace(c.file, []byte(c.from), []byte(c.to), 1)); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v\nwant %s", c.to, err, c.why)
		}
	}
	k, _ := load(t, "gpt2")
	if _, err := k.Decode([]int{1, 99999}, true); err == nil || err.Error() != "element 1: no token has the id 99999" {
		t.Error(err)
	}
	if _, err := k.Encode("a\xff", true); err == nil || err.Error() != "the text is not UTF-8" {
		t.Error(err)
	}
	// A vocabulary without a byte, and without a token for what is unknown.
	if k, err := Parse([]byte(`{"version":"1.0","model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`)); err != nil {
		t.Error(err)
	} else if _, err := k.Encode("ab", true); err == nil || err.Error() != "there is no token for 'b', and no unk_token" {
		t.Error(err)
	}
}

// charsmapOfUnit is a table whose first unit is u and whose others are empty.
func charsmapOfUnit(u uint32) string {
	content := binary.LittleEndian.AppendUint32(nil, 1024)
	content = binary.LittleEndian.AppendUint32(content, u)
	return base64.StdEncoding.EncodeToString(append(content, make([]byte, 1020)...))
}

// The most probable way to cut a word wins, also where a shorter token begins better.
func TestUnigram(t *testing.T) {
	for _, c := range []struct {
		vocab string
		word  string
		want  []int
	}{
		{`["?",0],["a",-1],["b",-1],["ab",-3]`, "ab", []int{1, 2}},
		{`["?",0],["a",-1],["b",-1],["ab",-1.5]`, "ab", []int{3}},
		{`["?",0],["ab",-1],["abc",-5],["c",-9],["bc",-1],["a",-1]`, "abc", []int{5, 4}},
		{`["?",0],["a",-1]`, "axya", []int{1, 0, 1}}, // what is unknown is one token
		{`["?",0],["日",-1],["本",-2],["日本",-4]`, "日本", []int{1, 2}},
	} {
		k, err := Parse([]byte(`{"version":"1.0","model":{"type":"Unigram","unk_id":0,"vocab":[` + c.vocab + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.Encode(c.word, true); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s of %s: %v, %v; want %v", c.word, c.vocab, got, err, c.want)
		}
	}
	k, err := Parse([]byte(`{"version":"1.0","model":{"type":"Unigram","unk_id":null,"vocab":[["a",0]]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Encode("aé", true); err == nil || err.Error() != `there is no token for "é", and no unk_id` {
		t.Error(err)
	}
}

// What Hugging Face's Split does with each behavior.
func TestSplitBehaviors(t *testing.T) {
	p, err := newPattern("-")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		behavior string
		invert   bool
		want     string
	}{
		{"Isolated", false, "-|a|-|-|bc|-|d|-"},
		{"Isolated", true, "-|a|-|-|bc|-|d|-"},
		{"Removed", false, "a|bc|d"},
		{"Removed", true, "-|-|-|-|-"},
		{"Contiguous", false, "-|a|--|bc|-|d|-"},
		{"Contiguous", true, "-|a|--|bc|-|d|-"},
		{"MergedWithPrevious", false, "-|a-|-|bc-|d-"},
		{"MergedWithPrevious", true, "-a|-|-bc|-d|-"},
		{"MergedWithNext", false, "-a|-|-bc|-d|-"},
		{"MergedWithNext", true, "-|a-|-|bc-|d-"},
	} {
		if got := strings.Join(p.split("-a--bc-d-", c.invert, c.behavior), "|"); got != c.want {
			t.Errorf("%s, invert %v: %s; want %s", c.behavior, c.invert, got, c.want)
		}
	}
}

// A byte-level tokenizer gives every text back.
func TestEveryTextBack(t *testing.T) {
	for _, name := range []string{"gpt2", "llama"} {
		k, _ := load(t, name)
		var b strings.Builder
		for r := rune(1); r < 0x3000; r++ {
			fmt.Fprintf(&b, "%c%s", r, strings.Repeat(" ", int(r%3)))
		}
		ids, err := k.Encode(b.String(), false)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := k.Decode(ids, true); err != nil || back != b.String() {
			t.Errorf("%s: %v, or another text", name, err)
		}
	}
}

// Whatever the file, it is read or there is an error, and what it encodes has tokens.
func FuzzTokenizer(f *testing.F) {
	for _, name := range names {
		_, content := load(f, name)
		f.Add(content, "Hello, wörld 123!\n\n <mask>")
	}
	f.Add([]byte(`{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"aa":1},"merges":["a a"]}}`), "aaa")
	f.Fuzz(func(t *testing.T, content []byte, text string) {
		k, err := Parse(content)
		if err != nil {
			return
		}
		ids, err := k.Encode(text, true)
		if err != nil {
			return
		}
		if _, err := k.Decode(ids, false); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// With ignore_merges, as Llama 3 has it, a word that is a token is that, also where no merges lead to it.
func TestIgnoreMerges(t *testing.T) {
	for ignore, want := range map[bool][]int{false: {2, 2}, true: {3}} {
		k, err := Parse(fmt.Appendf(nil, `{"version":"1.0","model":{"type":"BPE","ignore_merges":%v,"vocab":{"a":0,"b":1,"ab":2,"abab":3},"merges":["a b"]}}`, ignore))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.Encode("abab", true); err != nil || !slices.Equal(got, want) {
			t.Errorf("ignore_merges %v: %v, %v", ignore, got, err)
		}
	}
}

// No piece is empty: a prefix would make a token of it.
func TestNoEmptyPieces(t *testing.T) {
	split, err := splitterOf(json.RawMessage(`{"type":"Sequence","pretokenizers":[{"type":"BertPreTokenizer"},{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}]}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := split([]string{"a! (b)"}, true); !slices.Equal(got, []string{"Ġa", "Ġ!", "Ġ(", "Ġb", "Ġ)"}) {
		t.Errorf("%q", got)
	}
}

// Only a space that the tokenizer has put before a text goes away again.
func TestDecodedSpaces(t *testing.T) {
	for scheme, want := range map[string]string{"always": "a b", "first": "a b", "never": " a b"} {
		decode, err := decoderOf(json.RawMessage(`{"type":"Metaspace","replacement":"▁","prepend_scheme":"`+scheme+`"}`), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(decode([]string{"▁a", "▁b"}), ""); got != want {
			t.Errorf("%s: %q, want %q", scheme, got, want)
		}
	}
}
