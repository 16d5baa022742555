// Files of SQuAD.
#include "text/records/questions/squad.h"

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  for (const char* unanswerable : {"refuse", "keep"})
    fuzz::check(size, fuzz::kTextFactor, [&] { mh::text::read_squad({file.path()}, {1.0, unanswerable}); });
  return 0;
}
