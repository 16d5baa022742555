// Command-line options that select the vocabulary of an encoder's data: a vocabulary file of mh-prep vocab, the
// vocabulary of a multihead model, BERT's vocab.txt, or the folder of a model.
#pragma once

#include <memory>
#include <string>

#include "base/fields.h"
#include "text/tokenizer.h"

namespace mh::text {

struct BertVocabularyOptions {
  std::string vocabulary_path;
  std::string wordpiece_path;
  bool cased = false;
  std::string strip_accents = "auto";
  void describe(Fields& f) {
    f.field("vocab", vocabulary_path,
            "vocabulary of an encoder: a WordPiece vocabulary of mh-prep vocab, or a model that contains its "
            "vocabulary, as "
            "a file (.safetensors) or a folder of transformers");
    f.field("wordpiece", wordpiece_path,
            "WordPiece vocabulary of BERT, instead of --vocab: vocab.txt or the folder of a BERT model");
    f.field("cased", cased, "with --wordpiece: preserve the case of letters instead of converting text to lower case");
    f.field("strip_accents", strip_accents, "with --wordpiece: removal of accents; auto: yes unless --cased",
            {"auto", "yes", "no"});
  }
  // Throws Error(usage) if not exactly one of `vocabulary_path` and `wordpiece_path` is set, or if `cased` or
  // `strip_accents` is set although the vocabulary (`vocabulary_path`, or a model folder) states its own normalisation.
  void check() const;
  // Returns the path of the vocabulary file, of the model or of the folder.
  const std::string& path() const { return wordpiece_path.empty() ? vocabulary_path : wordpiece_path; }
  // Calls check(), then loads the vocabulary. Throws Error(input) for a vocabulary without the tokens of an encoder
  // (encoder_tokens()), and for a checkpoint without a vocabulary.
  std::unique_ptr<Tokenizer> load() const;
};

}  // namespace mh::text
