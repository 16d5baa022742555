// Vocabulary files of all types, SentencePiece models included: parsing, encoding, decoding and serialising.
#include <xxhash.h>

#include <cstdlib>
#include <numeric>

#include "base/text.h"
#include "fuzz/fuzz.h"
#include "text/tokenizer.h"

using namespace mh::text;

namespace {

// Returns a vocabulary of mh-prep with a corrected checksum, since the reader refuses mutations with a wrong
// checksum.
std::string correct_checksum(std::string text) {
  constexpr std::string_view kKey = "\nxxh64 ";
  const size_t key = text.find(kKey), end = key == text.npos ? text.npos : text.find("\n\n", key + 1);
  if (end == text.npos) return text;
  const size_t body = end + 2, value = key + kKey.size();
  const std::string checksum = mh::hex64(XXH64(text.data() + body, text.size() - body, 0));
  return value <= end ? text.replace(value, end - value, checksum) : text;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // The factor of text also applies to SentencePiece models, although these are binary: the library stores each piece,
  // of 9 bytes or more, in several objects and tables.
  fuzz::check(size, fuzz::kTextFactor, [&] {
    const auto tokenizer = parse_tokenizer(correct_checksum(std::string(fuzz::text_of(data, size))), "vocabulary");
    std::vector<int32_t> tokens;
    const auto encoder = tokenizer->encoder();
    for (const char* line : {"The cat sat, 42 times, on naïve mats.", " 東京  ", "\u0301", ""}) {
      encoder->encode(line, tokens);
      tokenizer->find_split(line);
    }
    for (int32_t token : tokens)
      if (token < 0 || token >= tokenizer->size()) std::abort();
    tokens.resize(static_cast<size_t>(std::min<int64_t>(tokenizer->size(), 1000)));
    std::iota(tokens.begin(), tokens.end(), 0);
    tokenizer->decode(tokens);
    for (int32_t token : tokens) tokenizer->piece(token);
    if (parse_tokenizer(tokenizer->serialize(), "vocabulary")->fingerprint() != tokenizer->fingerprint()) std::abort();
  });
  return 0;
}
