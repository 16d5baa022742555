// Frequency bands of a vocabulary that is sorted by descending frequency. Later bands contain rarer entries. With n
// cutoffs there are n + 1 bands: band 0 contains the entries below the first cutoff, band b the entries from the b-th
// cutoff up to, but excluding, the next cutoff, and band n all entries from the last cutoff on. The embeddings of band
// b have the width d / factor^b, rounded down, where `factor` is model.cutoff_factor.
//
// Source: Grave et al. 2017 (adaptive softmax), Baevski & Auli 2019 (adaptive input).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace mh::model {

struct ModelOptions;

class Bands {
 public:
  // `cutoffs`: ascending, below `num_entries`; empty: a single band. `num_entries`: number of entries of all bands.
  Bands(const std::vector<int64_t>& cutoffs, int64_t num_entries);

  size_t num_bands() const { return band_begins_.size() - 1; }
  int64_t first_entry(size_t band) const { return band_begins_[band]; }  // first entry of the band
  int64_t size(size_t band) const {
    return band_begins_[band + 1] - band_begins_[band];
  }  // number of entries of the band
  std::vector<int64_t> sizes() const;

  // The n entries of a list that are in one band. Both tensors are int64, contiguous and on the CPU.
  struct BandEntries {
    at::Tensor positions;  // (n), ascending: positions of the entries in the list
    at::Tensor offsets;    // (n): the entries minus the first entry of the band
  };
  // Splits a list of entries by band. `entries`: (N) int64, on any device, each below the number of entries of all
  // bands; negative entries are in no band.
  std::vector<BandEntries> split(const at::Tensor& entries) const;

 private:
  std::vector<int64_t> band_begins_;  // (num_bands() + 1): first entry of each band, then the number of all entries
};

// Returns the width of a band's embeddings, d / factor^band, rounded down.
int64_t band_width(const ModelOptions& options, size_t band);

// Throws Error(usage) if the options of adaptive input and adaptive softmax contradict each other or other options of
// the output layer, if cutoffs are not ascending and below `vocabulary_size`, or if a band would have the width 0.
void check_bands(const ModelOptions& options, int64_t vocabulary_size);

}  // namespace mh::model
