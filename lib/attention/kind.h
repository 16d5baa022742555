// What an attention layer attends from and to, and how long the rows of either side are.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace mh::attention {

enum class Kind { encoder_self, decoder_self, decoder_cross };
const char* name_of(Kind kind);  // "decoder.self"

// How many positions of each row are real, (B) int64 on the CPU; undefined where nobody says it: all are. Those of an
// encoder's input and those of a decoder's.
struct Lengths {
  at::Tensor decoder, encoder;
  Lengths(at::Tensor of_decoder = {}, at::Tensor of_encoder = {})  // NOLINT: rows of a decoder alone
      : decoder(std::move(of_decoder)), encoder(std::move(of_encoder)) {}
  const at::Tensor& queries(Kind kind) const { return kind == Kind::encoder_self ? encoder : decoder; }
  const at::Tensor& keys(Kind kind) const { return kind == Kind::decoder_self ? decoder : encoder; }
};

}  // namespace mh::attention
