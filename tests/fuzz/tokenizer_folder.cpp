// Tokenizer files of a Hugging Face folder, separated by 0x1E: tokenizer.json, vocab.json, merges.txt, vocab.txt,
// tokenizer_config.json, added_tokens.json, special_tokens_map.json, tokenizer.model. A file with no bytes is not
// written.
#include <iterator>

#include "fuzz/fuzz.h"
#include "text/folder_tokenizer.h"

using namespace mh::text;

namespace {

constexpr const char* kNames[] = {"tokenizer.json",
                                  "vocab.json",
                                  "merges.txt",
                                  "vocab.txt",
                                  "tokenizer_config.json",
                                  "added_tokens.json",
                                  "special_tokens_map.json",
                                  "tokenizer.model"};

void encode(const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  tokenizer.encoder()->encode("The cat sat, 42 times, on naïve mats.", tokens);
  tokenizer.decode(tokens);
  tokenizer.serialize();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto texts = fuzz::split_records(fuzz::text_of(data, size), std::size(kNames));
  const std::string& folder = fuzz::memory_folder(kNames, texts);
  fuzz::check(size, fuzz::kTextFactor, [&] { encode(*read_byte_bpe_folder(folder)); });
  fuzz::check(size, fuzz::kTextFactor, [&] { encode(*read_wordpiece_folder(folder)); });
  fuzz::check(size, fuzz::kTextFactor, [&] { encode(*read_tokenizer_folder(folder)); });
  return 0;
}
