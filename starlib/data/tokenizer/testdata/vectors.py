"""Makes the tokenizers here and what Hugging Face's library does with many texts: pip install tokenizers==0.23.3 sentencepiece protobuf; python vectors.py [NAME ...]"""

import io
import json
import random
import sys
import tempfile
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

docs = [p.read_text() for p in sorted(Path(__file__).parent.glob("../../../../docs/*.md"))]
docs += ["Ünïcödé naïve café, 日本語の文章です。 Привет, мир! مرحبا 😀👍🏽 don't we'll I'M they'RE\r\n\r\n  x\t y"] * 20
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(docs, trainers.BpeTrainer(vocab_size=900, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def llama():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(docs, trainers.BpeTrainer(vocab_size=700, special_tokens=["<|begin|>", "<|end|>", "<|end|>x"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", t.token_to_id("<|begin|>"))])])
    return t


def roberta():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", AddedToken("<mask>", lstrip=True, special=True), AddedToken("<gap>", rstrip=True)]
    t.train_from_iterator(docs, trainers.BpeTrainer(vocab_size=600, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    t.add_tokens(["ﬁle!", "common"])
    return t


def bert(lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(cleanup=lower)
    t.train_from_iterator(docs, trainers.WordPieceTrainer(vocab_size=800, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    t.add_tokens(["Tensor"])
    return t


def plain():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("-", "removed")])
    t.train_from_iterator(docs, trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], limit_alphabet=40))
    return t


def charsmap():
    """What SentencePiece makes of some rules of our own: its table of NFKC is as large as all the other files here."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    rules = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u200b": "", "ﬁ": "fi", "ß": "ss", "²": "2", "Ⅷ": "VIII", "ſ": "s", "e\u0301": "é", "İ": "I", "日": "nichi", "😀": ":)", "—": "-", "«": '"', "…": "..."}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
        for old, new in rules.items():
            f.write("\t".join(" ".join("%X" % ord(c) for c in s) for s in (old, new)) + "\n")
        f.flush()
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(docs), model_writer=out, vocab_size=400, normalization_rule_tsv=f.name, character_coverage=0.98, max_sentence_length=100000, minloglevel=2, num_threads=1)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def unigram(size, special=("<pad>", "</s>", "<unk>"), alphabet=False):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    return t, trainers.UnigramTrainer(vocab_size=size, special_tokens=list(special) + ["<0x%02X>" % b for b in range(256) if alphabet], unk_token="<unk>")


def t5():
    t, trainer = unigram(600)
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(docs, trainer)
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def xlm():
    t, trainer = unigram(500)
    t.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKC(), normalizers.Replace("--", "—")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(docs, trainer)
    t.add_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return t


def albert():
    t, trainer = unigram(700, alphabet=True)
    t.normalizer = normalizers.Lowercase()
    t.train_from_iterator(docs[::3], trainer)
    model = json.loads(t.to_str())
    model["model"]["byte_fallback"] = True
    model["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    t = Tokenizer.from_str(json.dumps(model))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_tokens([AddedToken("<gap>", rstrip=True)])
    return t


def llama2():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator([w for d in docs for w in d.split("\n")], trainers.BpeTrainer(vocab_size=900, limit_alphabet=60, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(0xE8)], max_token_length=8))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


random.seed(1)
pieces = ["a", "B", "é", "ß", "İ", "ſ", "日本", "ж", "😀", "👨‍👩‍👧", "🏳️‍🌈", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u200b", "\u0085", "\x1c", "\x0b", "0", "12345", "²", "Ⅷ", "٣", "'s", "'LL", "'ſ", "n't", ".", "!?", "—", "«",
    "_", "#", "$", "common", "tensor", "Tensor", "the ", " rank", "data.loader", "e\u0301", "\u0301", "ﬁle!", "ﬁ", "<|endoftext|>", "<|begin|>", "<|end|>", "<|end|>x", "<s>", "<mask>", "<gap>", "[MASK]", "[CLS]", "\x00", "\ufffd", "\ue000", "\u0378", "한국어", "हिन्दी", "supercalifragilisticexpialidocious", "-"]
texts = ["", " ", "Hello, world!", "I'm sure they'll say it's we've, you'd; don't", "  leading and trailing  ", "a\n\n\nb", "x   y", "tabs\t\t\tand\r\n\r\n lines", "1234567890 12 1", "<|endoftext|>a<|endoftext|>", "a <mask> b", "a <gap>  b", "\u0130stanbul ΟΔΟΣ", "x" * 300] + pieces
texts += ["".join(random.choice(pieces) for _ in range(random.randint(2, 9))) for _ in range(250)]
here = Path(__file__).parent
for name, make in {"gpt2": gpt2, "llama": llama, "roberta": roberta, "bert": lambda: bert(True), "bert-cased": lambda: bert(False), "plain": plain, "t5": t5, "xlm": xlm, "albert": albert, "llama2": llama2}.items():
    if len(sys.argv) > 1 and name not in sys.argv:
        continue
    t = make()
    t.save(str(here / (name + ".json")), pretty=False)
    with open(here / (name + ".jsonl"), "w", encoding="utf-8") as out:
        for text in texts:
            ids = t.encode(text).ids
            out.write(json.dumps([text, ids, t.encode(text, add_special_tokens=False).ids, t.decode(ids), t.decode(ids, skip_special_tokens=False), t.decode(ids[1::2])]) + "\n")
