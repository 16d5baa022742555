// The pickle of a state dict without its zip archive; the checksums of the archive would refuse most mutations.
#include "io/pickle.h"

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::check(size, fuzz::kBinaryFactor, [&] { mh::io::read_state_dict({data, size}, "pickle"); });
  return 0;
}
