#include "cpu/mixed_attention.h"

#include "cpu/mixed/few.h"
#include "cpu/mixed/passes.h"

namespace mh::kernels {

template struct MixedLoops<kLevel, float>;
template struct MixedLoops<kLevel, uint16_t>;

}  // namespace mh::kernels
