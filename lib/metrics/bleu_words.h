// The tokenisers of BLEU for plain text, as in sacrebleu 2.x.
//
// 13a is the tokeniser of mteval-v13a.pl, and intl the international tokeniser of mteval-v14.pl. Both consist of
// regular-expression substitutions, which bleu_words.cpp reproduces with their peculiarity: the matches of a
// substitution do not overlap.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mh::metrics {

enum class BleuTokenizer { mteval_13a, international, characters, none };
const std::vector<std::pair<BleuTokenizer, std::string>>& bleu_tokenizer_names();

// Returns the words of a line as views of `line`, which is changed in place. `split_compounds`: replaces hyphens
// between two characters other than white space by the word ##AT##-##AT##, as in the published scores of WMT En–De
// (Vaswani et al. 2017 and later papers). The matches of this substitution do not overlap either: a-b-c is split only
// between a and b. The tokeniser `characters` ignores `split_compounds`.
std::vector<std::u32string_view> bleu_words(std::u32string& line, BleuTokenizer tokenizer, bool split_compounds);

}  // namespace mh::metrics
