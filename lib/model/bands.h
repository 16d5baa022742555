// A vocabulary sorted by falling frequency, cut into bands: entries of a later band are rarer, and get fewer numbers
// each. Band b holds the entries from cutoff b - 1 (0 for the first) up to cutoff b, which is not in it; the last band
// holds the rest. Its width is d / factor^b, rounded down.
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
  // Ascending cutoffs below `rows`; none of them: a single band.
  Bands(const std::vector<int64_t>& cutoffs, int64_t rows);

  size_t count() const { return edges_.size() - 1; }
  int64_t first(size_t band) const { return edges_[band]; }
  int64_t size(size_t band) const { return edges_[band + 1] - edges_[band]; }
  std::vector<int64_t> sizes() const;

  // What a band holds of a list of entries; both int64, contiguous, on the CPU.
  struct Part {
    at::Tensor places;   // (n), ascending: where in the list
    at::Tensor entries;  // (n): which entries, counted from the band's first
  };
  // entries (N) int64 below `rows`, on any device; negative ones are in no band.
  std::vector<Part> split(const at::Tensor& entries) const;

 private:
  std::vector<int64_t> edges_;
};

// d / factor^band, rounded down.
int64_t band_width(const ModelOptions& options, size_t band);

// Error(usage) where the keys of bands make no sense together or for the vocabulary.
void check_bands(const ModelOptions& options, int64_t vocabulary);

}  // namespace mh::model
