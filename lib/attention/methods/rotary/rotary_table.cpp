// Computes, grows and shares the tables of rotary positions.
#include "attention/methods/rotary/rotary_table.h"

#include <algorithm>
#include <string>
#include <utility>

#include "attention/methods/rotary/frequencies.h"
#include "base/config.h"
#include "base/error.h"
#include "nn/aten.h"

namespace mh::attention {

namespace {

constexpr int64_t kMinPositions = 256;  // number of positions of a new table, so that the first steps of decoding do
                                        // not grow it

struct SharedTables {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<RotaryTable>> tables;  // by options, size and device
};
// Returns the tables of the process. They are never destroyed, since static objects are destroyed after CUDA has shut
// down, when GPU memory can no longer be freed.
SharedTables& all_shared_tables() {
  static auto& tables = *new SharedTables;
  return tables;
}

// Returns whether the frequencies belong to one length only (dynamic above the original length).
bool is_of_one_length(const RotaryOptions& options, int64_t frequency_length) {
  return options.scaling == RotaryScaling::dynamic && frequency_length > options.original_length;
}

}  // namespace

RotaryTable::RotaryTable(const RotaryOptions& options, int64_t rotary_size, at::Device device)
    : options_(options), rotary_size_(rotary_size), device_(device) {}

bool RotaryTable::may_be_captured(const RotaryRange& range) const { return !device_.is_cpu() && range.is_training; }

RotaryTable::Table RotaryTable::compute(int64_t begin, int64_t end, int64_t frequency_length) const {
  // Computed on the CPU, so that the table has the same bits on every device. The copy to a GPU is complete when to()
  // returns, so kernels of every stream may read the table. Cosines of fp32 depend on the place of an element in a
  // vector register in some math libraries; fp64 results, rounded to fp32, do not, so rows keep their bits when the
  // table grows.
  const at::Tensor positions = at::arange(begin, end, at::kLong).to(at::kFloat);
  const at::Tensor frequencies = rotary_frequencies(options_, rotary_size_, frequency_length);
  const at::Tensor angles = (positions.unsqueeze(1) * frequencies).to(at::kDouble);
  const double factor = attention_factor(options_);
  const auto scaled = [&](const at::Tensor& x) {
    const at::Tensor rounded = x.to(at::kFloat);
    return (factor == 1 ? rounded : rounded * factor).to(device_);
  };
  return {begin, end, {scaled(angles.cos()), scaled(angles.sin())}};
}

std::shared_ptr<const RotaryTable::Table> RotaryTable::find(const RotaryRange& range, int64_t frequency_length) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(frequency_length);
  if (it == entries_.end()) return nullptr;
  const auto& [table, is_permanent] = it->second;
  const bool has_rows = range.begin >= table->begin && range.end <= table->end;
  return has_rows && (is_permanent || !may_be_captured(range)) ? table : nullptr;
}

std::shared_ptr<const RotaryTable::Table> RotaryTable::grow(const RotaryRange& range, int64_t frequency_length) {
  const std::lock_guard growth_lock(growth_mutex_);
  if (auto table = find(range, frequency_length)) return table;  // computed while this call waited
  int64_t begin = range.begin, end = range.end;
  std::shared_ptr<const Table> old_table;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = entries_.find(frequency_length); it != entries_.end()) old_table = it->second.table;
  }
  if (is_of_one_length(options_, frequency_length)) {
    // A step of decoding needs one row of such a table, so the table has no further rows.
    if (old_table != nullptr) begin = std::min(begin, old_table->begin), end = std::max(end, old_table->end);
  } else if (old_table == nullptr) {
    begin = std::min<int64_t>(begin, 0), end = std::max(end, kMinPositions);
  } else {
    begin = begin < old_table->begin ? std::min(begin, 2 * old_table->begin) : old_table->begin;
    end = end > old_table->end ? std::max(end, 2 * old_table->end) : old_table->end;
  }
  auto table = std::make_shared<const Table>(compute(begin, end, frequency_length));
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return !entry.second.is_permanent; });
  Entry& entry = entries_[frequency_length];
  if (entry.table != nullptr && !device_.is_cpu()) replaced_tables_.push_back(entry.table);
  entry = {table, entry.is_permanent || !is_of_one_length(options_, frequency_length) || may_be_captured(range)};
  return table;
}

RotaryRows RotaryTable::rows(const RotaryRange& range) {
  const int64_t n = frequency_length(options_, range.length);
  auto table = find(range, n);
  if (table == nullptr) table = grow(range, n);
  const int64_t first = range.begin - table->begin, count = range.end - range.begin;
  return {table->rows.cosines.narrow(0, first, count), table->rows.sines.narrow(0, first, count)};
}

int64_t RotaryTable::num_positions() const {
  const std::lock_guard lock(mutex_);
  int64_t count = 0;
  for (const auto& [length, entry] : entries_) count += entry.table->end - entry.table->begin;
  return count;
}

std::shared_ptr<RotaryTable> shared_rotary_table(const RotaryOptions& options, int64_t rotary_size, at::Device device) {
  FieldLister lister;
  RotaryOptions copy = options;
  lister.section("", copy);
  std::string key = str(rotary_size, ' ', device.str());
  for (const auto& field : lister.descriptions())
    if (field.key != "size" || options.scaling == RotaryScaling::proportional)
      key += str(' ', field.key, '=', field.value);
  SharedTables& shared = all_shared_tables();
  const std::lock_guard lock(shared.mutex);
  auto& table = shared.tables[key];
  if (table == nullptr) table = std::make_shared<RotaryTable>(options, rotary_size, device);
  return table;
}

}  // namespace mh::attention
