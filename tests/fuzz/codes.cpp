// Codes files of subword-nmt: parsing, and segmentation of words by the merges.
#include "fuzz/fuzz.h"
#include "text/merges.h"

using namespace mh::text;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::check(size, fuzz::kTextFactor, [&] {
    const std::vector<Merge> merges = read_codes(std::string(fuzz::text_of(data, size)), "codes");
    const Segmenter segmenter(merges);
    for (const char* word : {"lowest", "naïve", "a", "ababababab"}) segmenter.piece_lengths(word);
  });
  return 0;
}
