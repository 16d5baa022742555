#include "io/log_quantities.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

namespace mh::io {

namespace {

const std::string kValidation = "valid_";  // prefix of the keys of validations in log.jsonl

bool contains(const std::vector<std::string>& texts, const std::string& text) {
  return std::ranges::find(texts, text) != texts.end();
}

}  // namespace

std::string quantity_of(const std::string& key) {
  return key.starts_with(kValidation) ? key.substr(kValidation.size()) : key;
}

std::vector<std::string> keys_of_quantity(const std::string& quantity) {
  std::vector<std::string> keys{quantity, kValidation + quantity};
  if (quantity == "loss") keys.push_back(kValidation + "nll");
  return keys;
}

std::vector<std::string> quantities_of(const std::vector<std::string>& keys) {
  std::vector<std::string> quantities;
  for (const std::string& key : keys)
    if (std::string quantity = quantity_of(key); !contains(quantities, quantity))
      quantities.push_back(std::move(quantity));
  return quantities;
}

std::vector<std::string> main_quantities(const std::vector<std::string>& keys) {
  const std::vector<std::string> all_quantities = quantities_of(keys);
  std::vector<std::string> quantities{"loss", "perplexity"};
  // A quantity without a key of training is a score of validations, except nll, which is the loss.
  for (const std::string& quantity : all_quantities)
    if (!contains(keys, quantity) && quantity != "nll" && !contains(quantities, quantity))
      quantities.push_back(quantity);
  quantities.emplace_back("lr");
  std::erase_if(quantities, [&](const std::string& quantity) {
    return !std::ranges::any_of(keys_of_quantity(quantity),
                                [&](const std::string& key) { return contains(keys, key); });
  });
  return quantities.empty() ? all_quantities : quantities;
}

bool is_smoothed(const std::string& key) { return !key.starts_with(kValidation) && key != "lr"; }

void smooth(std::vector<LogPoint>& points, const std::vector<std::string>& keys, int64_t num_values) {
  for (const std::string& key : keys) {
    if (!is_smoothed(key)) continue;
    std::deque<double> window;
    for (LogPoint& point : points)
      for (auto& [point_key, value] : point.values) {
        if (point_key != key) continue;
        window.push_back(value);
        if (static_cast<int64_t>(window.size()) > num_values) window.pop_front();
        value = std::accumulate(window.begin(), window.end(), 0.0) / static_cast<double>(window.size());
      }
  }
}

}  // namespace mh::io
