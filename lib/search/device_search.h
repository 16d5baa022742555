// Beam search and sampling (beam_search.h) as tensor operations of fixed shapes, so that a GPU decodes token after
// token without waiting for the host. Each step returns only its extensions, a few numbers per sentence, from which the
// host derives the hypotheses. After at most kMaxStepsPerRead steps, the host reads the extensions of these steps,
// applies the rules of beams.h, and removes finished sentences from the batch. Until then, finished sentences and rows
// without a live hypothesis are computed, too.
//
// The implementation works on any device, but is meant for GPUs: with beam_search.cpp, a GPU would be idle while the
// host reads the results of each step. On a CPU, beam_search.cpp is faster, since it leaves most hypotheses in their
// rows and thus copies less of the cache. Both implementations find the same tokens and draw the same samples, up to
// rounding.
#pragma once

#include <cstdint>
#include <vector>

#include "search/beams.h"

namespace mh::search {

// Maximum number of steps between two reads of the results by the host. A step of a small model takes 1 to 3 ms, a read
// less than 1 ms.
constexpr int64_t kMaxStepsPerRead = 8;

// Returns the hypotheses of each sentence, as beam_search() does without an observer.
std::vector<std::vector<Hypothesis>> search_on_device(model::LanguageModel& model, const Sentences& sentences,
                                                      const BeamPolicy& policy);

}  // namespace mh::search
