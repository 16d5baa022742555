// What BLEU takes for words: the tokenisers of sacrebleu 2.x, on plain text.
//
// 13a is mteval-v13a.pl's, intl mteval-v14.pl's international one; their substitutions (with their odd corners: a
// character that one substitution has matched it does not match again) are in the .cpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mh::metrics {

enum class BleuTokens { mteval_13a, international, characters, none };
const std::vector<std::pair<BleuTokens, std::string>>& bleu_token_names();

// The words of a line; they point into `line`, which is changed in place. `split_compounds`: each hyphen between two
// characters that are no white space becomes a word, ##AT##-##AT##, as in the published scores of WMT En–De (Vaswani et
// al. 2017 and after), whose script is a substitution too: of a-b-c it parts only a from b.
std::vector<std::u32string_view> bleu_words(std::u32string& line, BleuTokens tokens, bool split_compounds);

}  // namespace mh::metrics
