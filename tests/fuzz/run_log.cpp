// log.jsonl of a run folder, as a resumed run and mh-eval curves read it.
#include "io/run_log.h"

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::check(size, fuzz::kTextFactor,
              [&] { mh::io::rewind_log(std::string(fuzz::text_of(data, size)), 10, true, "log.jsonl"); });
  fuzz::check(size, fuzz::kTextFactor,
              [&] { mh::io::read_curves(std::string(fuzz::text_of(data, size)), "log.jsonl"); });
  return 0;
}
