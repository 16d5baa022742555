// The words of BLEU: the tokenisers of sacrebleu 2.x, on plain text.
//
// 13a is that of mteval-v13a.pl, intl the international one of mteval-v14.pl; their substitutions are in
// bleu_words.cpp, with their peculiarity: a character matched by one match of a substitution is not matched by the
// next.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mh::metrics {

enum class BleuTokens { mteval_13a, international, characters, none };
const std::vector<std::pair<BleuTokens, std::string>>& bleu_token_names();

// Returns the words of a line as views of `line`, which is changed in place. `split_compounds`: each hyphen between two
// characters other than white space becomes the word ##AT##-##AT##, as in the published scores of WMT En–De (Vaswani et
// al. 2017 and after), whose script is a substitution too: it splits a-b-c only between a and b.
std::vector<std::u32string_view> bleu_words(std::u32string& line, BleuTokens tokens, bool split_compounds);

}  // namespace mh::metrics
