package data

import (
	"fmt"

	"go.starlark.net/starlark"

	"drun/internal/each"
	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/data/tokenizer"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// Tokenizer is a tokenizer.json as a recipe sees it.
type Tokenizer struct {
	starlib.Opaque
	*tokenizer.Tokenizer
	file string
	ctx  *tensor.Context
}

var _ starlark.HasAttrs = (*Tokenizer)(nil)

func (t *Tokenizer) String() string {
	return fmt.Sprintf("<tokenizer of %d tokens>", t.Size())
}

func tokenizing(r *starlib.Rank, ctx *tensor.Context) *starlib.Def {
	return &starlib.Def{
		Sig: "tokenizer(path: string) -> Tokenizer",
		Doc: "A Hugging Face tokenizer.json: BPE, byte-level (GPT-2, RoBERTa, Llama 3) or with byte_fallback (Llama 2, Gemma), Unigram (T5, XLM-R) and WordPiece (BERT), with the normalizers NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, Precompiled and BertNormalizer, the pre-tokenizers ByteLevel, Metaspace, Split, WhitespaceSplit and BertPreTokenizer, and sequences of them. The ids are those of Hugging Face's library. Anything else that a file asks for (truncation, padding) is an error that names it, never ignored.",
		Fn: func(c *starlib.Call) (starlark.Value, error) {
			name := c.String("path")
			content := try.To(readAll(r.Files, name))
			t, err := tokenizer.Parse(content)
			try.FailIf(err != nil, "%s: %w", name, err)
			return &Tokenizer{"Tokenizer", t, name, ctx}, nil
		},
	}
}

var tokenizerMethods = &starlib.Methods{
	Type: "Tokenizer",
	Doc:  "Turns text into numbers, and back. It is immutable: data.map and a loader's functions may call it.",
	Attrs: [][2]string{
		{"vocab_size", "the number of tokens, including added ones"},
		{"special", "the special tokens, a dict from their text to their ids"},
	},
	Defs: []*starlib.Def{
		{Sig: "encode(text: string, special: bool = True) -> Tensor",
			Doc: "The ids of a text: int64, shape (tokens,). With special, those that the file asks for, such as [CLS] and [SEP], are put around them. Special tokens in the text itself are always recognised.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				t := c.Recv.(*Tokenizer)
				ids, err := t.Encode(c.String("text"), c.Bool("special"))
				try.FailIf(err != nil, "%s: %w", t.file, err)
				wide := each.Of(ids, func(id int) int64 { return int64(id) })
				return startensor.Result(tensor.FromInts(t.ctx, wide, []int{len(ids)}, dtype.Int64))
			}},
		{Sig: "decode(ids: Tensor | list, skip_special: bool = True) -> string",
			Doc: "The text for ids, a list or a one-dimensional tensor of integers. skip_special leaves the special tokens out. Bytes that are not UTF-8 become U+FFFD.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				t := c.Recv.(*Tokenizer)
				ids, err := integers(c.Arg("ids"))
				try.FailIf(err != nil, "argument ids: %w", err)
				text, err := t.Decode(ids, c.Bool("skip_special"))
				try.FailIf(err != nil, "argument ids: %w", err)
				return starlark.String(text), nil
			}},
		{Sig: "id(token: string) -> int | None",
			Doc: "The id of a token, written as in the file (a byte-level one has Ġ for a space); None if there is none.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				if id, ok := c.Recv.(*Tokenizer).ID(c.String("token")); ok {
					return starlark.MakeInt(id), nil
				}
				return starlark.None, nil
			}},
		{Sig: "token(id: int) -> string",
			Doc: "The token with an id, written as in the file.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				s, ok := c.Recv.(*Tokenizer).Token(c.Int("id"))
				try.FailIf(!ok, "no token has the id %s", c.Arg("id"))
				return starlark.String(s), nil
			}},
	},
}

func (t *Tokenizer) Attr(name string) (starlark.Value, error) {
	switch name {
	case "vocab_size":
		return starlark.MakeInt(t.Size()), nil
	case "special":
		list := t.Special()
		d := starlark.NewDict(len(list))
		for _, id := range list {
			s, _ := t.Token(id)
			_ = d.SetKey(starlark.String(s), starlark.MakeInt(id))
		}
		return d, nil
	}
	return tokenizerMethods.Attr(t, name)
}

func (t *Tokenizer) AttrNames() []string { return tokenizerMethods.AttrNames() }
