#include "analysis/head_parts.h"

#include "base/text.h"

namespace mh::analysis {

using attention::HeadSide;

std::vector<HeadPart> head_parts(const model::Parameter& parameter) {
  const model::Traits& traits = parameter.traits();
  if (!traits.head_axis) return {};
  auto has = [&](const char* part) { return parameter.name().find(part) != std::string::npos; };
  const int64_t first = *traits.head_axis;
  if (traits.second_head_axis) {
    const HeadSide rows = has(".combiner.") ? HeadSide::output : HeadSide::score;
    return {{first, traits.heads, rows}, {*traits.second_head_axis, traits.heads, HeadSide::value}};
  }
  HeadSide side = HeadSide::value;
  if (traits.role == model::HeadRole::output) side = HeadSide::output;
  else if (traits.role == model::HeadRole::projection) side = has(".value.") ? HeadSide::value : HeadSide::score;
  // Of a mixer's matrix rows are score heads, columns value heads.
  else if (has(".mixer.query") || has(".combiner.") || has(".gate.") || (has(".mixer.") && first == 1))
    side = HeadSide::value;
  else side = HeadSide::score;
  return {{first, traits.heads, side}};
}

}  // namespace mh::analysis
