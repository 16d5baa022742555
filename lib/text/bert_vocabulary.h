// Options that choose the vocabulary of BERT data: a vocabulary of mh-prep, the vocabulary of a model, or BERT's own
// vocab.txt.
#pragma once

#include <memory>
#include <string>

#include "base/fields.h"
#include "text/wordpiece.h"

namespace mh::text {

struct BertVocabulary {
  std::string vocab;
  std::string wordpiece;
  bool cased = false;
  std::string strip_accents = "auto";
  void describe(Fields& f) {
    f.field("vocab", vocab,
            "vocabulary of the type wordpiece made by mh-prep vocab, or a model (.safetensors) with one");
    f.field("wordpiece", wordpiece, "instead of --vocab: BERT's vocab.txt or the folder of a BERT model");
    f.field("cased", cased, "with --wordpiece: keep the case of letters");
    f.field("strip_accents", strip_accents, "with --wordpiece: whether accents are removed; auto: yes unless --cased",
            {"auto", "yes", "no"});
  }
  // Throws Error(usage) unless exactly one of `vocab` and `wordpiece` is set, and for options that only apply to
  // --wordpiece.
  void check() const;
  // Returns the path of the vocabulary, the model or the folder.
  const std::string& file() const { return wordpiece.empty() ? vocab : wordpiece; }
  // Calls check(), then loads the vocabulary. Throws Error(input) for a vocabulary of a type other than wordpiece, and
  // for a checkpoint without a vocabulary.
  std::unique_ptr<WordPieceTokenizer> load() const;
};

}  // namespace mh::text
