#include "attention/attention_kind.h"

namespace mh::attention {

const char* name_of(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::encoder_self:
      return "encoder.self";
    case AttentionKind::decoder_self:
      return "decoder.self";
    case AttentionKind::decoder_cross:
      return "decoder.cross";
  }
  return "";
}

}  // namespace mh::attention
