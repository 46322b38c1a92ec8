"""Makes the tokenizers here and what Hugging Face's library does with many texts: pip install tokenizers==0.23.3; python vectors.py"""

import json
import random
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


random.seed(1)
pieces = ["a", "B", "é", "ß", "İ", "ſ", "日本", "ж", "😀", "👨‍👩‍👧", "🏳️‍🌈", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u200b", "\u0085", "\x1c", "\x0b", "0", "12345", "²", "Ⅷ", "٣", "'s", "'LL", "'ſ", "n't", ".", "!?", "—", "«",
    "_", "#", "$", "common", "tensor", "Tensor", "the ", " rank", "data.loader", "e\u0301", "\u0301", "ﬁle!", "ﬁ", "<|endoftext|>", "<|begin|>", "<|end|>", "<|end|>x", "<s>", "<mask>", "<gap>", "[MASK]", "[CLS]", "\x00", "\ufffd", "\ue000", "\u0378", "한국어", "हिन्दी", "supercalifragilisticexpialidocious", "-"]
texts = ["", " ", "Hello, world!", "I'm sure they'll say it's we've, you'd; don't", "  leading and trailing  ", "a\n\n\nb", "x   y", "tabs\t\t\tand\r\n\r\n lines", "1234567890 12 1", "<|endoftext|>a<|endoftext|>", "a <mask> b", "a <gap>  b", "\u0130stanbul ΟΔΟΣ", "x" * 300] + pieces
texts += ["".join(random.choice(pieces) for _ in range(random.randint(2, 9))) for _ in range(250)]
here = Path(__file__).parent
for name, make in {"gpt2": gpt2, "llama": llama, "roberta": roberta, "bert": lambda: bert(True), "bert-cased": lambda: bert(False), "plain": plain}.items():
    t = make()
    t.save(str(here / (name + ".json")), pretty=False)
    with open(here / (name + ".jsonl"), "w", encoding="utf-8") as out:
        for text in texts:
            ids = t.encode(text).ids
            out.write(json.dumps([text, ids, t.encode(text, add_special_tokens=False).ids, t.decode(ids), t.decode(ids, skip_special_tokens=False), t.decode(ids[1::2])]) + "\n")
