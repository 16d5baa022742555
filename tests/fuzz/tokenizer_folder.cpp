// Tokenizer files of a Hugging Face folder, separated by 0x1E: tokenizer.json, vocab.json, merges.txt, vocab.txt,
// tokenizer_config.json, added_tokens.json. An empty one does not exist.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fuzz/fuzz.h"
#include "text/folder_tokenizer.h"

using namespace mh::text;

namespace {

constexpr const char* kNames[] = {"tokenizer.json",        "vocab.json",       "merges.txt", "vocab.txt",
                                  "tokenizer_config.json", "added_tokens.json"};

void encode(const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  tokenizer.encoder()->encode("The cat sat, 42 times, on naïve mats.", tokens);
  tokenizer.decode(tokens);
  tokenizer.serialize();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string folder = "/dev/shm/multihead-fuzz-" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const auto files = fuzz::divide(fuzz::text_of(data, size), std::size(kNames));
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string path = folder + "/" + kNames[i];
    if (files[i].empty()) std::filesystem::remove(path);
    else std::ofstream(path, std::ios::binary) << files[i];
  }
  fuzz::check(size, fuzz::kTextFactor, [&] { encode(*read_byte_bpe_folder(folder)); });
  fuzz::check(size, fuzz::kTextFactor, [&] { encode(*read_wordpiece_folder(folder)); });
  std::filesystem::remove_all(folder);
  return 0;
}
