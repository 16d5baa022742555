// Chooses the pairs of heads that head rotation swaps, and checks the options of head rotation.
#include "analysis/rotation.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace mh::analysis {

namespace {

// Number of heads that PairSelection::released swaps in each pair of layers.
constexpr int64_t kReleasedSelectionHeads = 4;

// Returns `heads` in ascending order of importance; heads with equal scores are ordered by layer, then by head.
std::vector<Head> rank_heads(const LayerScores& scores, std::vector<Head> heads) {
  auto score = [&](const Head& h) { return scores[static_cast<size_t>(h.layer)][static_cast<size_t>(h.head)]; };
  std::sort(heads.begin(), heads.end());
  std::stable_sort(heads.begin(), heads.end(), [&](const Head& a, const Head& b) { return score(a) < score(b); });
  return heads;
}

std::vector<Head> heads_in(int64_t layer, int64_t num_heads) {
  std::vector<Head> layer_heads;
  for (int64_t head = 0; head < num_heads; ++head) layer_heads.push_back({layer, head});
  return layer_heads;
}

std::vector<Head> rank_layer(const LayerScores& scores, int64_t layer) {
  return rank_heads(scores, heads_in(layer, static_cast<int64_t>(scores[static_cast<size_t>(layer)].size())));
}

// Returns k with its unit, which depends on the selection, such as "3 pairs of heads", for messages.
std::string count_text(PairSelection selection, int64_t k) {
  if (selection == PairSelection::soft) return str(count_of(k, "head"), " per layer");
  if (selection == PairSelection::in_layer) return str(count_of(k, "pair"), " of heads per layer");
  return str(count_of(k, "pair"), selection == PairSelection::released ? " of layers" : " of heads");
}

// Returns the minimum numbers of layers and heads for this selection, for messages.
std::string required_heads(PairSelection selection) {
  if (selection == PairSelection::soft) return "at least 2 layers, with at least 2 heads each,";
  if (selection == PairSelection::released)
    return str("at least 2 layers, with at least ", kReleasedSelectionHeads, " heads each,");
  return selection == PairSelection::in_layer ? "layers with at least 2 heads each" : "at least 2 heads";
}

// Returns the numbers separated by commas, for messages.
std::string join_counts(const std::vector<int64_t>& counts) {
  std::vector<std::string> texts;
  for (const int64_t count : counts) texts.push_back(str(count));
  return join(texts, ", ");
}

// Returns k pairs of the heads `ranked_heads`, in ascending order of importance: the last and the first head, the
// second to last and the second head, and so on.
std::vector<HeadPair> pair_ends(AttentionKind kind, const std::vector<Head>& ranked_heads, int64_t k) {
  std::vector<HeadPair> pairs;
  for (auto i = 0U; static_cast<int64_t>(i) < k; ++i)
    pairs.push_back({kind, ranked_heads[ranked_heads.size() - 1 - i], ranked_heads[i]});
  return pairs;
}

}  // namespace

int64_t largest_k(PairSelection selection, const std::vector<int64_t>& head_counts) {
  const int64_t num_heads = std::accumulate(head_counts.begin(), head_counts.end(), int64_t{0});
  const auto num_layers = static_cast<int64_t>(head_counts.size());
  const int64_t min_heads = head_counts.empty() ? 0 : *std::min_element(head_counts.begin(), head_counts.end());
  switch (selection) {
    case PairSelection::soft:
      return num_layers < 2 ? 0 : min_heads / 2;
    case PairSelection::released:
      return min_heads < kReleasedSelectionHeads ? 0 : num_layers / 2;
    case PairSelection::in_layer:
      return min_heads / 2;
    case PairSelection::hard:
    case PairSelection::random:
      return num_heads / 2;
  }
  return 0;
}

std::vector<HeadPair> pair_hard(AttentionKind kind, const LayerScores& scores, int64_t k) {
  std::vector<Head> ranked_heads;
  for (size_t layer = 0; layer < scores.size(); ++layer)
    for (const Head& head : heads_in(static_cast<int64_t>(layer), static_cast<int64_t>(scores[layer].size())))
      ranked_heads.push_back(head);
  return pair_ends(kind, rank_heads(scores, ranked_heads), k);
}

std::vector<HeadPair> pair_in_layer(AttentionKind kind, const LayerScores& scores, int64_t k) {
  std::vector<HeadPair> pairs;
  for (int64_t layer = 0; layer < static_cast<int64_t>(scores.size()); ++layer) {
    const auto layer_pairs = pair_ends(kind, rank_layer(scores, layer), k);
    pairs.insert(pairs.end(), layer_pairs.begin(), layer_pairs.end());
  }
  return pairs;
}

std::vector<HeadPair> pair_soft(AttentionKind kind, const LayerScores& scores, int64_t k, int64_t t_max) {
  const auto num_layers = static_cast<int64_t>(scores.size());
  std::vector<HeadPair> pairs;
  for (int64_t layer = 0; layer < (t_max > 0 ? t_max : num_layers / 2); ++layer) {
    const auto first_heads = rank_layer(scores, layer), second_heads = rank_layer(scores, num_layers - 1 - layer);
    for (auto r = 0U; static_cast<int64_t>(r) < k; ++r) pairs.push_back({kind, first_heads[r], second_heads[r]});
  }
  return pairs;
}

std::vector<HeadPair> pair_as_in_released_code(AttentionKind kind, const LayerScores& scores, int64_t k) {
  const auto num_layers = static_cast<int64_t>(scores.size());
  std::vector<HeadPair> pairs;
  for (int64_t layer = 0; layer < k; ++layer) {
    const auto ranked_heads = rank_layer(scores, layer);
    for (auto r = 0U; static_cast<int64_t>(r) < kReleasedSelectionHeads; ++r)
      pairs.push_back({kind, ranked_heads[r], {num_layers - 1 - layer, ranked_heads[r].head}});
  }
  return pairs;
}

std::vector<HeadPair> pair_random(AttentionKind kind, const std::vector<int64_t>& head_counts, int64_t k,
                                  RandomSequence& random) {
  std::vector<Head> model_heads;
  for (size_t layer = 0; layer < head_counts.size(); ++layer)
    for (const Head& head : heads_in(static_cast<int64_t>(layer), head_counts[layer])) model_heads.push_back(head);
  std::vector<int64_t> order(model_heads.size());
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(order);
  std::vector<HeadPair> pairs;
  for (auto i = 0U; static_cast<int64_t>(i) < k; ++i)
    pairs.push_back(
        {kind, model_heads[static_cast<size_t>(order[2 * i])], model_heads[static_cast<size_t>(order[2 * i + 1])]});
  return pairs;
}

std::vector<HeadPair> pair_ranked(PairSelection selection, AttentionKind kind, const LayerScores& scores, int64_t k,
                                  int64_t t_max) {
  return selection == PairSelection::hard       ? pair_hard(kind, scores, k)
         : selection == PairSelection::released ? pair_as_in_released_code(kind, scores, k)
         : selection == PairSelection::in_layer ? pair_in_layer(kind, scores, k)
                                                : pair_soft(kind, scores, k, t_max);
}

std::map<AttentionKind, std::vector<int64_t>> head_counts_for_pairing(
    nn::ParameterList& parameters, PairSelection selection, int64_t k, int64_t t_max,
    const std::vector<std::string>& kinds, const SwapOptions& options,
    const std::function<std::string(const char*)>& key) {
  if (t_max > 0 && selection != PairSelection::soft)
    refuse_usage(key("t_max"),
                 selection == PairSelection::released
                     ? str("0 with the mode 'released', whose number of pairs of layers is ", key("k"))
                     : std::string("0 unless the mode is 'soft'"),
                 str(t_max), str("leave ", key("t_max"), " out"));
  const auto head_counts = head_counts_of(parameters);
  std::map<AttentionKind, std::vector<int64_t>> selected_counts;
  const Kinds selected_kinds = kinds_named(kinds, parameters, key("kind"));
  for (const auto& kind_entry : head_counts)
    if (contains(selected_kinds, kind_entry.first)) selected_counts.insert(kind_entry);
  for (const auto& [kind, layers] : selected_counts) {
    const int64_t max_k = largest_k(selection, layers);
    if (max_k == 0)
      refuse_usage(key("mode"), required_heads(selection) + str(" in ", name_of(kind)),
                   str(count_of(layers.size(), "layer"), ", with these numbers of heads: ", join_counts(layers)),
                   "use another mode, or a model with more layers or heads");
    if (k > max_k)
      refuse_usage(key("k"), str("at most ", count_text(selection, max_k), " in ", name_of(kind)),
                   found_value(k, kDefaultK), "lower " + key("k"));
    if (const auto num_layer_pairs = static_cast<int64_t>(layers.size()) / 2; t_max > num_layer_pairs)
      refuse_usage(key("t_max"),
                   str("at most ", num_layer_pairs, ", the number of pairs of opposite layers in ", name_of(kind)),
                   str(t_max), "lower " + key("t_max"));
    if (selection == PairSelection::in_layer) {
      for (int64_t layer = 0; layer < static_cast<int64_t>(layers.size()); ++layer)
        check_swap(parameters, {{kind, {layer, 0}, {layer, 1}}}, options, key("mode"));
      continue;
    }
    // The other selections may pair any two layers, so all layers must match the first layer that has heads.
    const auto first = std::find_if(layers.begin(), layers.end(), [](int64_t heads) { return heads > 0; });
    for (auto layer = first; layer != layers.end(); ++layer)
      if (layer != first && *layer > 0)
        check_swap(parameters, {{kind, {first - layers.begin(), 0}, {layer - layers.begin(), 0}}}, options,
                   key("mode"));
  }
  return selected_counts;
}

RotationSchedule::Action RotationSchedule::action_before(int64_t epoch, int64_t swap_epoch, bool is_swapped) const {
  if (epoch < start_epoch) return Action::none;
  if (is_swapped) return epoch > end_epoch || epoch - swap_epoch >= num_swapped_epochs ? Action::undo : Action::none;
  if (epoch > end_epoch) return Action::none;
  return swap_epoch == 0 || epoch - swap_epoch >= num_swapped_epochs + num_rest_epochs ? Action::swap : Action::none;
}

}  // namespace mh::analysis
