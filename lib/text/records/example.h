// An input sequence for BERT (Devlin et al. 2019): one or two segments with special tokens, and the training targets.
#pragma once

#include <cstdint>
#include <vector>

namespace mh::text {

// The meaning of `targets` depends on the output layer of the model; -1: unknown or not predicted.
//   words    one target per token: the original token, or -1 if it is not predicted; targets[0], at [CLS], is the
//            next-sentence class: 0 if the second segment follows the first, 1 if not, -1 without a second segment
//   class    one target: the class
//   number   one target: the number in thousandths (STS-B: 0 to 5000)
//   span     two targets: positions of the first and last token of the answer; both 0, at [CLS], if there is no answer
struct Example {
  // [CLS] first [SEP], or [CLS] first [SEP] second [SEP]; RoBERTa has <s> in place of [CLS], </s> in place of [SEP],
  // and two separators between both texts.
  std::vector<int32_t> tokens;
  int32_t first_segment_length =
      0;  // number of tokens of segment 0, which ends with the separators after the first text
  std::vector<int64_t> targets;
};

}  // namespace mh::text
