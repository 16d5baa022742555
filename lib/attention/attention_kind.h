// The kinds of attention layers, by the sequences that they attend from and to, and the lengths of these sequences.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace mh::attention {

enum class AttentionKind { encoder_self, decoder_self, decoder_cross };
const char* name_of(AttentionKind kind);  // "decoder.self"

// The number of real (not padding) positions of each row of the decoder's and of the encoder's input, (B) int64 on the
// CPU; undefined: no padding.
struct Lengths {
  at::Tensor decoder, encoder;
  Lengths(at::Tensor of_decoder = {}, at::Tensor of_encoder = {})  // NOLINT: implicit, for models with only a decoder
      : decoder(std::move(of_decoder)), encoder(std::move(of_encoder)) {}
  const at::Tensor& queries(AttentionKind kind) const {
    return kind == AttentionKind::encoder_self ? encoder : decoder;
  }
  const at::Tensor& keys(AttentionKind kind) const { return kind == AttentionKind::decoder_self ? decoder : encoder; }
};

}  // namespace mh::attention
