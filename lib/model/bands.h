// Frequency bands of a vocabulary that is sorted by descending frequency: entries of later bands are rarer and have
// narrower embeddings. Band b holds the entries [cutoff b-1, cutoff b), the first band begins at 0, and the last one
// holds the rest. Embeddings of band b have the width d / factor^b, rounded down.
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
  // `cutoffs`: ascending, below `rows`; empty: a single band.
  Bands(const std::vector<int64_t>& cutoffs, int64_t rows);

  size_t count() const { return edges_.size() - 1; }
  int64_t first(size_t band) const { return edges_[band]; }
  int64_t size(size_t band) const { return edges_[band + 1] - edges_[band]; }
  std::vector<int64_t> sizes() const;

  // The entries of a list that are in one band; both tensors int64, contiguous, on the CPU.
  struct BandEntries {
    at::Tensor places;   // (n), ascending: indices into the list
    at::Tensor entries;  // (n): entries relative to the first one of the band
  };
  // Splits entries (N), int64 below `rows`, on any device, by band; negative entries are in no band.
  std::vector<BandEntries> split(const at::Tensor& entries) const;

 private:
  std::vector<int64_t> edges_;
};

// Returns the width of a band's embeddings, d / factor^band, rounded down.
int64_t band_width(const ModelOptions& options, size_t band);

// Throws Error(usage) if the options of bands contradict each other or do not fit the vocabulary.
void check_bands(const ModelOptions& options, int64_t vocabulary);

}  // namespace mh::model
