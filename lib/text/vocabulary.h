// Makes vocabularies from text or from existing vocabulary files: the work of mh-prep vocab.
#pragma once

#include <string>
#include <vector>

#include "base/fields.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"
#include "text/wordpiece.h"

namespace mh::text {

struct VocabularyOptions {
  std::string type = "word";
  int64_t size = 0;
  int64_t min_count = 1;
  int64_t merges = 0;
  std::string codes;
  std::string from;
  bool cased = false;
  std::string strip_accents = "auto";
  int64_t alphabet = WordPieceOptions{}.alphabet;
  double character_coverage = 0.9995;
  bool byte_fallback = false;
  int64_t threads = 0;
  void describe(Fields& f) {
    f.field("type", type, "what a token is",
            {"word", "char", "byte", "bpe", "unigram", "subword-nmt", "wordpiece", "byte-bpe"});
    f.field("size", size,
            "entries at most, the special ones included; 0: no bound (bpe, unigram and wordpiece need one)",
            at_least(0));
    f.field(
        "min_count", min_count,
        "word, char, subword-nmt: leave out what occurs less often; wordpiece: join no pieces that do so less often",
        at_least(1));
    f.field("merges", merges, "subword-nmt: learn so many merges from the text, as its learn-bpe does", at_least(0));
    f.field("codes", codes, "subword-nmt: instead, the merges of this file of its codes or vocabulary of this type");
    f.field(
        "from", from,
        "wordpiece: instead of learning it, the entries of this file, BERT's vocab.txt, or the folder of a BERT model; "
        "byte-bpe: the folder of a GPT-2 model");
    f.field("cased", cased, "wordpiece: keep the case of letters");
    f.field("strip_accents", strip_accents, "wordpiece: drop accents; auto: unless --cased", {"auto", "yes", "no"});
    f.field("alphabet", alphabet, "wordpiece: characters at most that get a piece, the most frequent ones",
            at_least(1));
    f.field("character_coverage", character_coverage, "bpe, unigram: share of characters that get a piece",
            between(0.98, 1));
    f.field("byte_fallback", byte_fallback, "bpe, unigram: spell unknown characters in bytes");
    f.field("threads", threads, "bpe, unigram: threads of the trainer; 0: all cores", between(0, 128));
  }
  // Throws Error(usage) for options that the type does not use.
  void check() const;
};

// Reads the text once and returns its vocabulary. Words and characters are ordered by decreasing count, ties bytewise.
// SentencePiece models are trained by the SentencePiece library, with <unk> 0, <s> 1, </s> 2 (the end of a line).
// Merges of subword-nmt are learnt or read from --codes; the resulting pieces of the text are ordered like words.
// WordPieces are learnt (learn_wordpieces). With --from, entries are read in their order and the text is not read.
// Throws Error(input) for text without a word.
std::unique_ptr<Tokenizer> make_vocabulary(const VocabularyOptions& options, TextBatches& text);

}  // namespace mh::text
