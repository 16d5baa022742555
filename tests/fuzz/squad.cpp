// SQuAD files: parsing, once with unanswerable questions refused and once with unanswerable questions kept.
#include "text/records/squad.h"

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& path = fuzz::memory_file(fuzz::text_of(data, size));
  for (const char* unanswerable : {"refuse", "keep"})
    fuzz::check(size, fuzz::kTextFactor, [&] { mh::text::read_squad({path}, {1.0, unanswerable}); });
  return 0;
}
