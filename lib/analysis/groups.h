// Groups of query heads that read the same key/value head (grouped-query attention), as units of analysis and pruning.
// The groups of a layer have the indices of its key/value heads; in a layer without groups, each head is its own group.
#pragma once

#include <map>
#include <string>

#include "analysis/heads.h"
#include "analysis/importance.h"

namespace mh::analysis {

// The unit that an ablation scan masks, a ranking scores, or `mh-prune cut` removes.
enum class HeadUnit { head, group };
inline constexpr const char* kHeadUnitNames[] = {"head", "group"};
const char* name_of(HeadUnit unit);
HeadUnit head_unit_named(const std::string& name);  // returns `head` for unknown names

// Throws Error(usage) if the groups of heads cannot be units of this side: groups have all sides of their heads.
void check_unit(HeadUnit unit, SideSelection side, const std::string& where);

// Returns all groups of the layers of these kinds (empty: all kinds), in the form of heads: layer and index of the
// group.
HeadSet all_groups(model::LanguageModel& model, const Kinds& kinds);

// Returns the heads of the groups. Throws Error(usage) that names the option `where` if the model lacks a group.
HeadSet heads_of_groups(model::LanguageModel& model, const HeadSet& groups, const std::string& where);

// Returns the number of query heads of each group in the layers of these pairs of groups, for SwapOptions::group_size.
// Throws Error(usage) that names the option `where` unless all groups of these layers have the same number of heads.
int64_t group_size_of(model::LanguageModel& model, const std::vector<HeadPair>& pairs, const std::string& where);

// Returns the score of each group, [layer][group]: the sum of the scores of its heads, [layer][head].
std::map<AttentionKind, LayerScores> sum_by_group(model::LanguageModel& model,
                                                  const std::map<AttentionKind, LayerScores>& scores);

}  // namespace mh::analysis
