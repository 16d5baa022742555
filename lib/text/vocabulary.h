// Makes vocabularies from text or from existing vocabulary files, for mh-prep vocab.
#pragma once

#include <string>
#include <vector>

#include "base/fields.h"
#include "text/text_batches.h"
#include "text/tokenizer.h"
#include "text/vocabulary_types.h"
#include "text/wordpiece.h"

namespace mh::text {

struct VocabularyOptions {
  std::string type = "word";
  int64_t max_size = 0;
  int64_t min_count = 1;
  int64_t num_merges = 0;
  std::string codes_path;
  std::string source_path;
  bool cased = false;
  std::string strip_accents = "auto";
  int64_t max_alphabet_size = WordPieceOptions{}.max_alphabet_size;
  double character_coverage = 0.9995;
  bool byte_fallback = false;
  int64_t num_threads = 0;
  void describe(Fields& f) {
    f.field("type", type,
            "type of the vocabulary; bpe, unigram: subwords of SentencePiece; byte-bpe: byte-level BPE of GPT-2; "
            "tokenizer-json: other tokenizers of Hugging Face",
            vocabulary_type_names());
    f.field("size", max_size,
            "maximum number of entries, special tokens included; required for bpe and unigram, and without --from for "
            "wordpiece and byte-bpe; 0: no limit, for other types",
            at_least(0));
    f.field("min_count", min_count,
            "with --type word, char or subword-nmt: minimum count of an entry in the text; with --type wordpiece "
            "or byte-bpe: minimum count at which a pair of pieces is merged",
            at_least(1));
    f.field("merges", num_merges,
            "with --type subword-nmt: number of BPE merges to learn from the text, as subword-nmt learn-bpe does; 0: "
            "merges come from --codes",
            at_least(0));
    f.field("codes", codes_path,
            "with --type subword-nmt: file with existing merges, used instead of learning new merges with --merges; "
            "either the output of subword-nmt learn-bpe, or a vocabulary of mh-prep vocab --type subword-nmt");
    f.field("from", source_path,
            "existing vocabulary to convert instead of reading text; with --type wordpiece: BERT's vocab.txt or the "
            "folder of a BERT model; with --type byte-bpe: the folder of a GPT-2 model; with --type tokenizer-json: a "
            "tokenizer.json "
            "or the folder of a model");
    f.field("cased", cased,
            "with --type wordpiece: preserve the case of letters instead of converting text to lower case");
    f.field("strip_accents", strip_accents, "with --type wordpiece: removal of accents; auto: yes unless --cased",
            {"auto", "yes", "no"});
    f.field("alphabet", max_alphabet_size,
            "with --type wordpiece: maximum number of distinct characters that get a piece; the most frequent "
            "characters are chosen",
            at_least(1));
    f.field("character_coverage", character_coverage,
            "with --type bpe or unigram: fraction of the characters of the text that get a piece; the rarest "
            "characters get no piece",
            between(0.98, 1));
    f.field("byte_fallback", byte_fallback,
            "with --type bpe or unigram: encode characters without a piece as UTF-8 bytes instead of as <unk>");
    f.field("threads", num_threads,
            "with --type bpe or unigram: number of threads of the SentencePiece trainer; 0: one per core, at most 128",
            between(0, 128));
  }
  // An option that has no effect, with parts of the error that refuses the option.
  struct UnusedOption {
    std::string key;  // key of the field in describe()
    std::string expected, found;
  };
  // Returns the options that neither the type nor, with --from, the conversion uses, whatever their values.
  std::vector<UnusedOption> unused_options() const;
  // Throws Error(usage) for an option of unused_options() without its default value, and for missing or contradictory
  // options.
  void check() const;
};

// Reads `text` once and returns its vocabulary. Words and characters are ordered by decreasing count, then bytewise.
// SentencePiece models are trained by the SentencePiece library, with the ids 0 for <unk>, 1 for <s> and 2 for </s>,
// the end-of-line token. Merges of subword-nmt are learnt or read from --codes; the resulting pieces of the text are
// ordered like words. WordPieces are learnt by learn_wordpieces(), byte-level BPE by learn_byte_bpe(). With --from,
// entries keep the order of the file and `text` is not read. Throws the errors of options.check(), Error(usage) for a
// `max_size` that is too small, and Error(input) for text without a word (types char, byte and byte-bpe: only for empty
// text).
std::unique_ptr<Tokenizer> make_vocabulary(const VocabularyOptions& options, TextBatches& text);

}  // namespace mh::text
