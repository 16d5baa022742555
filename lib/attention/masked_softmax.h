// Masked softmax. For the backward pass it saves only the probabilities. softmax_function.h has the masked softmax of
// transformed logits.
#pragma once

#include <ATen/core/Tensor.h>

namespace mh::attention {

// Returns probabilities p with the shape of `logits` (B, h, Tq, Tk): the unmasked entries of a row sum to 1, with sinks
// to less than 1, and all masked entries are exactly 0; a fully masked row is zero. `sinks` (h): logit of a further key
// of each head, whose probability is not part of the result; undefined: no sinks. `attention_mask` is a broadcastable
// boolean mask (true: the query may attend to the key); undefined: no entry is masked. Where an additive mask is minus
// infinity, `attention_mask` must be false, as in the result of boolean_mask() (mask.h), so that unmasked logits are
// finite.
at::Tensor masked_softmax(const at::Tensor& logits, const at::Tensor& attention_mask, const at::Tensor& sinks = {});

// Returns the same result as masked_softmax(). Without sinks, contiguous fp32 logits on a CPU are overwritten by the
// result if nothing else references them (buffer_reuse.h), so the caller must not read the logits afterwards.
at::Tensor masked_softmax_in_place(const at::Tensor& logits, const at::Tensor& attention_mask,
                                   const at::Tensor& sinks = {});

}  // namespace mh::attention
