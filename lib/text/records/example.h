// A row for BERT (Devlin et al. 2019): one or two segments with special tokens, and the targets.
#pragma once

#include <cstdint>
#include <vector>

namespace mh::text {

// Targets by the head of the model; -1: unknown or not predicted:
//   words    one for each token: the original token, -1 where none is predicted; but targets[0], at [CLS], is the class
//   of
//            the second segment: 0 it follows the first, 1 it does not, -1 there is none
//   class    one class
//   number   one number in thousandths (STS-B: 0 to 5000)
//   span     two: first and last token of the answer; both 0, at [CLS], if there is none
struct Example {
  std::vector<int32_t> tokens;  // [CLS] first [SEP], or [CLS] first [SEP] second [SEP]
  int32_t first = 0;            // tokens of segment 0: all up to the first [SEP]
  std::vector<int64_t> targets;
};

}  // namespace mh::text
