// Vocabulary files of all types, SentencePiece models included: parsing, encoding, decoding and serialising.
#include <numeric>

#include "fuzz/fuzz.h"
#include "text/tokenizer.h"

using namespace mh::text;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::check(size, fuzz::kTextFactor, [&] {
    const auto tokenizer = parse_tokenizer(std::string(fuzz::text_of(data, size)), "vocabulary");
    std::vector<int32_t> tokens;
    const auto encoder = tokenizer->encoder();
    for (const char* line : {"The cat sat, 42 times, on naïve mats.", " 東京  ", "\u0301", ""}) {
      encoder->encode(line, tokens);
      tokenizer->find_split(line);
    }
    for (int32_t token : tokens)
      if (token < 0 || token >= tokenizer->size()) __builtin_trap();
    tokens.resize(static_cast<size_t>(std::min<int64_t>(tokenizer->size(), 1000)));
    std::iota(tokens.begin(), tokens.end(), 0);
    tokenizer->decode(tokens);
    for (int32_t token : tokens) tokenizer->piece(token);
    if (parse_tokenizer(tokenizer->serialize(), "vocabulary")->fingerprint() != tokenizer->fingerprint())
      __builtin_trap();
  });
  return 0;
}
