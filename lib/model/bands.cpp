// Splits vocabulary entries by frequency band and checks the options of adaptive input and adaptive softmax.
#include "model/bands.h"

#include "base/error.h"
#include "base/text.h"
#include "model/model_config.h"

namespace mh::model {

Bands::Bands(const std::vector<int64_t>& cutoffs, int64_t num_entries) : band_begins_{0} {
  band_begins_.insert(band_begins_.end(), cutoffs.begin(), cutoffs.end());
  band_begins_.push_back(num_entries);
}

std::vector<int64_t> Bands::sizes() const {
  std::vector<int64_t> band_sizes;
  for (size_t b = 0; b < num_bands(); ++b) band_sizes.push_back(size(b));
  return band_sizes;
}

std::vector<Bands::BandEntries> Bands::split(const at::Tensor& entries) const {
  const at::Tensor cpu_entries = entries.to(at::kCPU, at::kLong).contiguous();
  const auto* entry = cpu_entries.const_data_ptr<int64_t>();
  std::vector<std::vector<int64_t>> positions(num_bands()), offsets(num_bands());
  for (int64_t i = 0; i < cpu_entries.numel(); ++i) {
    if (entry[i] < 0) continue;
    // A linear search from band 0 is fast, since most tokens are in the first bands.
    size_t b = 0;
    while (b + 1 < num_bands() && entry[i] >= band_begins_[b + 1]) ++b;
    positions[b].push_back(i);
    offsets[b].push_back(entry[i] - band_begins_[b]);
  }
  std::vector<BandEntries> band_entries;
  for (size_t b = 0; b < num_bands(); ++b)
    band_entries.push_back({at::tensor(positions[b], at::kLong), at::tensor(offsets[b], at::kLong)});
  return band_entries;
}

int64_t band_width(const ModelOptions& options, size_t band) {
  int64_t width = options.width;
  for (size_t b = 0; b < band; ++b) width /= options.cutoff_factor;
  return width;
}

namespace {

std::string format_cutoffs(const std::vector<int64_t>& cutoffs) {
  std::vector<std::string> texts;
  texts.reserve(cutoffs.size());
  for (int64_t c : cutoffs) texts.push_back(std::to_string(c));
  return str("[", join(texts, ", "), "]");
}

void check_cutoffs(const std::string& key, const std::vector<int64_t>& cutoffs, const ModelOptions& o,
                   int64_t vocabulary_size) {
  int64_t previous_cutoff = 0;
  for (int64_t c : cutoffs) {
    if (c <= previous_cutoff)
      refuse_usage(key, "ascending cutoffs above 0", format_cutoffs(cutoffs),
                   "sort the cutoffs, and remove equal ones");
    previous_cutoff = c;
  }
  if (previous_cutoff >= vocabulary_size)
    refuse_usage(key, str("cutoffs below ", vocabulary_size, ", the size of the vocabulary"), format_cutoffs(cutoffs),
                 "lower the cutoffs, since each band needs at least one entry");
  if (band_width(o, cutoffs.size()) == 0)
    refuse_usage("model.cutoff_factor", "a factor that leaves the last band a width of at least 1",
                 str("the width ", o.width, " / ", o.cutoff_factor, "^", cutoffs.size(), ", below 1, for ", key),
                 "lower model.cutoff_factor, or set fewer cutoffs");
}

}  // namespace

void check_bands(const ModelOptions& o, int64_t vocabulary_size) {
  check_cutoffs("model.input_cutoffs", o.input_cutoffs, o, vocabulary_size);
  check_cutoffs("model.output_cutoffs", o.output_cutoffs, o, vocabulary_size);
  const bool has_one_table = o.cutoff_factor == 1;
  if (o.input_cutoffs.empty() && o.output_cutoffs.empty() && o.cutoff_factor != ModelOptions().cutoff_factor)
    refuse_usage("model.cutoff_factor", "cutoffs in model.input_cutoffs or model.output_cutoffs",
                 str("model.cutoff_factor=", o.cutoff_factor, " without cutoffs"),
                 "set model.input_cutoffs or model.output_cutoffs, or leave model.cutoff_factor out");
  if (o.tied && !has_one_table && o.input_cutoffs != o.output_cutoffs)
    refuse_usage(
        "model.tied", "equal model.input_cutoffs and model.output_cutoffs, whose bands share embedding tables",
        format_cutoffs(o.input_cutoffs) + " and " + format_cutoffs(o.output_cutoffs),
        "set both keys to the same cutoffs, or set model.tied=false, or set model.cutoff_factor=1 to use a single "
        "table");
  if (o.tied_projections && (o.output_cutoffs.empty() || has_one_table))
    refuse_usage("model.tied_projections", "an adaptive softmax with projections",
                 has_one_table ? "model.cutoff_factor=1, without projections" : "a full softmax",
                 str("set model.", has_one_table ? "cutoff_factor above 1" : "output_cutoffs",
                     ", or model.tied_projections=false"));
  if (o.tied_projections && o.input_cutoffs != o.output_cutoffs)
    refuse_usage("model.tied_projections",
                 "equal model.input_cutoffs and model.output_cutoffs, whose bands share projections",
                 format_cutoffs(o.input_cutoffs) + " and " + format_cutoffs(o.output_cutoffs),
                 "set both keys to the same cutoffs, or set model.tied_projections=false");
  if (o.first_band_projection && (o.output_cutoffs.empty() || has_one_table))
    refuse_usage("model.first_band_projection", "an adaptive softmax with projections",
                 has_one_table ? "model.cutoff_factor=1, without projections" : "a full softmax",
                 str("set model.", has_one_table ? "cutoff_factor above 1" : "output_cutoffs",
                     ", or model.first_band_projection=false"));
  if (!o.output_cutoffs.empty() && (o.output_scale != 1 || o.output_soft_cap != 0)) {
    const std::string key = o.output_scale != 1 ? "model.output_scale" : "model.output_soft_cap";
    refuse_usage(key, "a full softmax, whose logits the key changes", "an adaptive softmax",
                 str("leave model.output_cutoffs out, or leave ", key, " out"));
  }
  if (o.dropout_tail > 0 && o.output_cutoffs.empty())
    refuse_usage("model.dropout_tail", "an adaptive softmax, which has tails", "a full softmax",
                 "set model.output_cutoffs, or model.dropout_tail=0");
}

}  // namespace mh::model
