// The kinds of attention layers: self-attention of an encoder or decoder, and cross-attention. Does not use LibTorch,
// so that the fuzz targets parse names of heads without it.
#pragma once

namespace mh::attention {

enum class AttentionKind { encoder_self, decoder_self, decoder_cross };
inline constexpr AttentionKind kAttentionKinds[] = {AttentionKind::encoder_self, AttentionKind::decoder_self,
                                                    AttentionKind::decoder_cross};
const char* name_of(AttentionKind kind);  // returns the name in configuration keys, such as "decoder.self"

}  // namespace mh::attention
