// Which axes of a parameter are heads, and of which side.
#pragma once

#include <vector>

#include "attention/stage.h"

namespace mh::analysis {

struct HeadPart {
  int64_t axis = 0;
  int64_t heads = 0;  // equal consecutive blocks, block i of head i
  attention::HeadSide side = attention::HeadSide::value;
};

std::vector<HeadPart> head_parts(const model::Parameter& parameter);

}  // namespace mh::analysis
