// The search of beam_search.h as tensor operations of fixed shapes, so that a GPU decodes token after token without the
// host. All hypotheses follow from the extensions of each step, a few numbers for a sentence; the host reads those of
// kSteps steps at once, applies the rule of all searches (beams.h), and removes finished sentences from the batch.
// Until then finished sentences are still computed, as are the rows of a beam that is not full.
//
// It runs on any device, and is meant for devices where a read-back costs more than a step; on a CPU beam_search.cpp,
// which keeps hypotheses in their rows, is faster. Both find the same tokens up to rounding, and draw the same samples.
#pragma once

#include <cstdint>
#include <vector>

#include "search/beams.h"

namespace mh::search {

// Steps between two read-backs. A step of a small model takes 1 to 3 ms, a read-back less than one.
constexpr int64_t kSteps = 8;

// Returns the results of beam_search(), without an observer.
std::vector<std::vector<Hypothesis>> search_on_device(model::LanguageModel& model, const Sentences& sentences,
                                                      const BeamPolicy& policy);

}  // namespace mh::search
