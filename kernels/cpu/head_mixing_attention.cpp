// Instantiates the passes of attention with head mixing (cpu/head_mixing/) for one instruction set, for fp32 and bf16
// tensors.
#include "cpu/head_mixing_attention.h"

#include "cpu/head_mixing/decode.h"
#include "cpu/head_mixing/passes.h"

namespace mh::kernels {

template struct HeadMixingLoops<kSimdLevel, float>;
template struct HeadMixingLoops<kSimdLevel, uint16_t>;

}  // namespace mh::kernels
