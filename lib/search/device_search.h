// The search of beam_search.h by operations on tensors of fixed shapes, so that a GPU goes from token to token without
// the host. What the hypotheses are follows from the ways that each step sees, a few numbers for a sentence; the host
// reads those of kSteps steps at once, follows them by the rule of all searches (beams.h), and lets sentences that are
// done leave. Up to then these are computed for nothing, as are the rows of a beam that is not full.
//
// It runs on any device, and is for those where reading back costs more than a step; on a CPU the other one, which
// keeps hypotheses in their rows, is faster. Which tokens it finds is the same, up to rounding; draws of samples too.
#pragma once

#include <cstdint>
#include <vector>

#include "search/beams.h"

namespace mh::search {

// Between two looks of the host. A step of a small model takes 1 to 3 ms, and a look less than one.
constexpr int64_t kSteps = 8;

// As beam_search(), without an observer: for each of the sentences.
std::vector<std::vector<Hypothesis>> search_on_device(model::LanguageModel& model, const Sentences& sentences,
                                                      const BeamPolicy& policy);

}  // namespace mh::search
