#include "train/shared_validation.h"

#include <bit>
#include <chrono>

#include "base/json_types.h"

namespace mh::train {

namespace {

using nlohmann::ordered_json;

// Maximum time for which a process waits until all processes have finished a validation. A process that is stopped ends
// the wait within the timeout of the group.
constexpr std::chrono::hours kValidationTimeout{24};

}  // namespace

Validation validation_of_rank_0(const Validation& own_validation, const distributed::Group& group) {
  if (group.is_single()) return own_validation;
  group.barrier(kValidationTimeout);
  ordered_json own_numbers{{"loss", std::bit_cast<uint64_t>(own_validation.loss)}, {"scores", ordered_json::object()}};
  for (const auto& [name, value] : own_validation.scores) own_numbers["scores"][name] = std::bit_cast<uint64_t>(value);
  const auto numbers = ordered_json::parse(group.broadcast(own_numbers.dump()));
  Validation validation{std::bit_cast<double>(numbers.at("loss").get<uint64_t>()), {}};
  for (const auto& [name, value] : numbers.at("scores").items())
    validation.scores.emplace_back(name, std::bit_cast<double>(value.get<uint64_t>()));
  return validation;
}

}  // namespace mh::train
