// Files of predicted answers to SQuAD questions.
#include "metrics/predictions.h"

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& path = fuzz::memory_file(fuzz::text_of(data, size));
  fuzz::check(size, fuzz::kTextFactor, [&] { mh::metrics::read_predictions(path); });
  return 0;
}
