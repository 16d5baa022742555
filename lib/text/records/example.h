// A row as BERT reads it (Devlin et al. 2019): one segment or two with the special tokens, and what is to be said of
// it.
#pragma once

#include <cstdint>
#include <vector>

namespace mh::text {

// Targets by what a model says; what is unknown or not asked is -1:
//   words    as many as tokens: the token that stood there, -1 where nothing is predicted; but targets[0], at [CLS], is
//            the class of the second segment: 0 it follows the first, 1 it does not, -1 there is none
//   class    one number
//   number   one number in thousandths (STS-B: 0 to 5000)
//   span     two: first and last token of the answer, both 0, at [CLS], where there is none
struct Example {
  std::vector<int32_t> tokens;  // [CLS] first [SEP], or [CLS] first [SEP] second [SEP]
  int32_t first = 0;            // how many of them are of segment 0: all up to the first [SEP]
  std::vector<int64_t> targets;
};

}  // namespace mh::text
