#include "data/pinned.h"

#include "nn/aten.h"

namespace mh::data {

Batch pin_batch(Batch batch) {
  for (at::Tensor* t : {&batch.input.tokens, &batch.input.source, &batch.input.segments, &batch.targets})
    if (t->defined()) *t = t->pin_memory();
  return batch;
}

}  // namespace mh::data
