// The quantities in the log of a training run (run_log.h), and their moving averages. The values of a quantity in
// training and in validations have keys of their own: loss, and valid_loss or valid_nll.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/run_log.h"

namespace mh::io {

// Returns the quantity that a key of log.jsonl reports: the key without valid_.
std::string quantity_of(const std::string& key);
// Returns the keys of a quantity: its values in training and in validations. The validation of a language model reports
// its loss under the key valid_nll.
std::vector<std::string> keys_of_quantity(const std::string& quantity);
// Returns the quantities that the keys of a log report, without duplicates, in the order of their first keys.
std::vector<std::string> quantities_of(const std::vector<std::string>& keys);
// Returns the quantities that summarise a log with these keys: loss, perplexity, the scores of validations and the
// learning rate, if the log has them; without any of these, all quantities.
std::vector<std::string> main_quantities(const std::vector<std::string>& keys);

// Returns whether smooth() changes the values of a key: values of training other than the learning rate.
bool is_smoothed(const std::string& key);
// Replaces each value of a key with is_smoothed() by the mean of up to `num_values` values: itself and the values
// before it.
void smooth(std::vector<LogPoint>& points, const std::vector<std::string>& keys, int64_t num_values);

}  // namespace mh::io
