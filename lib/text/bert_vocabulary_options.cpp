#include "text/bert_vocabulary_options.h"

#include <filesystem>

#include "base/error.h"
#include "text/encoder_vocabulary.h"
#include "text/folder_tokenizer.h"

namespace mh::text {

void BertVocabularyOptions::check() const {
  if (vocabulary_path.empty() == wordpiece_path.empty())
    refuse_usage("--vocab", "either --vocab (a wordpiece vocabulary or a model) or --wordpiece (BERT's vocab.txt)",
                 vocabulary_path.empty() ? "neither" : "both",
                 vocabulary_path.empty()
                     ? "make a vocabulary for --vocab with mh-prep vocab --type wordpiece --size 30000"
                     : "leave --vocab or --wordpiece out");
  if (!wordpiece_path.empty()) {
    if (std::filesystem::is_directory(wordpiece_path))
      refuse_text_options("--wordpiece", wordpiece_path, cased, strip_accents);
    return;
  }
  for (const char* option :
       {cased ? "--cased" : "", strip_accents != BertVocabularyOptions{}.strip_accents ? "--strip-accents" : ""})
    if (*option != 0)
      refuse_usage(option, "--wordpiece, since a vocabulary of --vocab states how text is normalised", "--vocab",
                   str("leave ", option, " out"));
}

std::unique_ptr<Tokenizer> BertVocabularyOptions::load() const {
  check();
  const BertNormalisation normalisation = bert_normalisation(cased, strip_accents);
  if (!wordpiece_path.empty()) return read_wordpiece_vocabulary(wordpiece_path, normalisation);
  auto tokenizer = load_tokenizer(vocabulary_path);
  encoder_tokens(*tokenizer, vocabulary_path);  // throws for the vocabulary of another model than an encoder
  return tokenizer;
}

}  // namespace mh::text
