// The lengths of the sequences of a batch, by kind of attention layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "attention/attention_kind.h"

namespace mh::attention {

// Sequence lengths of a batch: the number of real (not padding) positions of each batch row, in the decoder input and
// in the encoder input. Both tensors are (B) int64 on the CPU. An undefined tensor means that no row is padded, or that
// the model has no such input.
struct Lengths {
  at::Tensor decoder, encoder;
  Lengths() = default;
  explicit Lengths(at::Tensor decoder_lengths) : decoder(std::move(decoder_lengths)) {}
  Lengths(at::Tensor decoder_lengths, at::Tensor encoder_lengths)
      : decoder(std::move(decoder_lengths)), encoder(std::move(encoder_lengths)) {}
  // queries() returns the lengths of the sequences from which an attention layer of this kind projects its queries;
  // keys() returns the lengths of the sequences from which the layer projects its keys and values.
  const at::Tensor& queries(AttentionKind kind) const {
    return kind == AttentionKind::encoder_self ? encoder : decoder;
  }
  const at::Tensor& keys(AttentionKind kind) const { return kind == AttentionKind::decoder_self ? decoder : encoder; }
};

}  // namespace mh::attention
