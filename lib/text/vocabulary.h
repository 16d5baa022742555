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
    f.field("type", type, "type of the tokens",
            {"word", "char", "byte", "bpe", "unigram", "subword-nmt", "wordpiece", "byte-bpe"});
    f.field("size", size,
            "maximum number of entries, special ones included; 0: no limit (bpe, unigram and wordpiece need one)",
            at_least(0));
    f.field("min_count", min_count,
            "word, char, subword-nmt: minimum count of an entry; wordpiece: minimum count of a pair of pieces to join",
            at_least(1));
    f.field("merges", merges, "subword-nmt: number of merges to learn from the text, as learn-bpe does", at_least(0));
    f.field("codes", codes, "subword-nmt: codes file or vocabulary to read merges from, instead of --merges");
    f.field("from", from,
            "wordpiece: BERT's vocab.txt or the folder of a BERT model to read entries from, instead of learning them; "
            "byte-bpe: the folder of a GPT-2 model");
    f.field("cased", cased, "wordpiece: keep the case of letters");
    f.field("strip_accents", strip_accents, "wordpiece: whether accents are removed; auto: yes unless --cased",
            {"auto", "yes", "no"});
    f.field("alphabet", alphabet, "wordpiece: maximum number of characters with a piece, the most frequent ones",
            at_least(1));
    f.field("character_coverage", character_coverage,
            "bpe, unigram: fraction of the characters of the text that pieces cover", between(0.98, 1));
    f.field("byte_fallback", byte_fallback, "bpe, unigram: encode unknown characters as bytes");
    f.field("threads", threads, "bpe, unigram: number of trainer threads; 0: all cores", between(0, 128));
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
