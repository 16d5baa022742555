// What spectra are taken of: a source gathers the singular values of its matrices, place by place, from forward passes
// that it observes or from parameters by what they say of their heads.
//
//   attention      attention matrices after mixing, before dropout
//   before-mixing  what a mixer is given: attention matrices, or logits where it mixes those
//   logits         score matrices, scaled, before mask and mixer: whole products, of later keys too. Of a causal model
//   the
//                  upper half is never used; a score that knows distances takes them as negative there
//   mixing         matrices that mix heads, one a position where they depend on it
//   alphas         parameters both of whose axes are heads: alphas and mixing matrices
//   output-value   W^V_i W^O_i, what head i makes of an input; without mixer and combiner
//   weight:NAME    a parameter by its name; of one with three axes, each matrix
//
// The first four look at rows of full length only where rows are blocks of a text. Of sentences each matrix has a size
// of its own, that of its real queries and keys; those of one size go together.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/entropy.h"
#include "analysis/heads.h"
#include "analysis/spectrum.h"
#include "analysis/subject.h"
#include "attention/stage.h"
#include "base/registry.h"
#include "io/checkpoint.h"

namespace mh::analysis {

// Spectra of the matrices of one place.
struct PlaceSpectra {
  std::string of;         // what they are: "attention", "logits-before-mixing", "weight"
  std::string name;       // a layer's prefix, or a parameter's name
  std::string kind;       // "decoder.self", "" where it belongs to no attention layer
  int64_t layer = -1;     // -1: none
  bool by_head = false;   // a matrix for each head, or one in all
  SpectrumMeans spectra;  // of (matrices, h or 1, n); by share where each sentence has a size of its own
  EntropyMeans entropy;   // where has_entropy
  bool has_entropy = false;
  at::Tensor picture = {};  // (h, h), the mean of matrices between heads
};

class SpectrumSource : public attention::Observer {
 public:
  // What is asked after the colon, whether percentiles will be; tokens of a row of full length, or whether rows are
  // sentences; of which kinds.
  struct Asked {
    std::string argument;
    bool curves = false;
    int64_t block = 0;
    bool sentences = false;
    Kinds kinds = {};
  };
  virtual bool reads_text() const { return true; }
  // Once, before anything is shown. Error(usage) where the model has nothing of the kind.
  virtual void start(model::LanguageModel& model, const Asked& asked) { asked_ = asked; }
  void begin(const attention::Lengths& lengths) override { lengths_ = lengths; }
  // In the order of layers, as far as something was found.
  const std::vector<std::unique_ptr<PlaceSpectra>>& places() const { return places_; }

 protected:
  PlaceSpectra& place(const std::string& of, const std::string& name, bool by_head, bool by_share = false);
  // x (B, h, m, n) of a pass, of queries and keys. With entropy: x are attention matrices.
  void add_rows(const std::string& of, const attention::Shape& shape, const at::Tensor& x, bool entropy);
  // x (B, m, …) -> (N, …), those of the queries that are looked at, in their order.
  at::Tensor positions(attention::Kind kind, const at::Tensor& x) const;
  bool looks_at(attention::Kind kind) const { return among(asked_.kinds, kind); }
  Asked asked_;

 private:
  at::Tensor full_rows(attention::Kind kind, const at::Tensor& x) const;
  attention::Lengths lengths_;
  std::vector<std::unique_ptr<PlaceSpectra>> places_;
};

Registry<SpectrumSource>& spectrum_sources();

// "weight:NAME" -> its source and NAME. Error(usage), about the option `where`, for what is no source, for one that
// lacks its name and for a name where none belongs.
struct NamedSource {
  std::unique_ptr<SpectrumSource> source;
  std::string argument;
};
NamedSource source_named(const std::string& text, const std::string& where);

// Error(usage), about the option `where`, where weight:NAME names no tensor of the checkpoint; names the nearest one.
void require_weight(const io::Checkpoint& checkpoint, const std::string& name, const std::string& where);

}  // namespace mh::analysis
