// Tokenizer files of a Hugging Face folder, separated by 0x1E: tokenizer.json, vocab.json, merges.txt, vocab.txt,
// tokenizer_config.json, added_tokens.json, special_tokens_map.json, tokenizer.model. A file with no bytes is not
// written. The folder is also read as that of a Marian model: tokenizer.model is also source.spm and target.spm, and
// vocab.json also target_vocab.json.
#include <iterator>

#include "fuzz/fuzz.h"
#include "text/folder_tokenizer.h"
#include "text/marian_tokenizer.h"

using namespace mh::text;

namespace {

constexpr const char* kNames[] = {"tokenizer.json",
                                  "vocab.json",
                                  "merges.txt",
                                  "vocab.txt",
                                  "tokenizer_config.json",
                                  "added_tokens.json",
                                  "special_tokens_map.json",
                                  "tokenizer.model",
                                  "source.spm",
                                  "target.spm",
                                  "target_vocab.json"};
constexpr size_t kNumRecords = 8;              // files with a record of their own; the others have copies
constexpr size_t kVocabulary = 1, kModel = 7;  // indices of vocab.json and tokenizer.model

void encode(const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  tokenizer.encoder()->encode("The cat sat, 42 times, on naïve mats.", tokens);
  tokenizer.decode(tokens);
  tokenizer.serialize();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto texts = fuzz::split_records(fuzz::text_of(data, size), kNumRecords);
  for (const size_t copied : {kModel, kModel, kVocabulary}) texts.push_back(std::string(texts[copied]));
  const std::string& folder = fuzz::memory_folder(kNames, texts);
  fuzz::check(size, fuzz::kTextFactor, [&] { encode(*read_byte_bpe_folder(folder)); });
  fuzz::check(size, fuzz::kTextFactor, [&] { encode(*read_wordpiece_folder(folder)); });
  fuzz::check(size, fuzz::kTextFactor, [&] { encode(*read_tokenizer_folder(folder)); });
  fuzz::check(2 * size, fuzz::kTextFactor, [&] {  // the two vocabularies of the model have two copies of the files
    const Tokenizers tokenizers = read_marian_folder(folder);
    encode(*tokenizers.source);
    encode(*tokenizers.target);
  });
  return 0;
}
