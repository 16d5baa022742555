// Sources of matrices for spectra. A source collects the singular values of its matrices, layer by layer or parameter
// by parameter, either from observed forward passes or from parameters.
//
//   attention      attention matrices after mixing, before dropout
//   before-mixing  input of the mixer: attention matrices, or logits if the mixer mixes logits
//   logits         scaled logits before mask and mixer, including logits that a causal mask hides. A causal model never
//                  uses the hidden logits; with relative positions, their distances are negative
//   mixing         matrices that mix heads; one per position for mixers that depend on the position
//   alphas         parameters whose two axes are both heads: alphas and mixing matrices
//   output-value   W^V_i W^O_i, the map of head i from input to output, ignoring mixer and combiner
//   weight:NAME    the parameter of this name; if it has three axes, each matrix along the first axis
//
// For text, the first four sources use only blocks of full length. For sentences, a matrix covers the queries and keys
// of one sentence, without padding.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/additive_observer.h"
#include "analysis/analysis_input.h"
#include "analysis/entropy.h"
#include "analysis/heads.h"
#include "analysis/spectrum.h"
#include "attention/stage.h"
#include "base/registry.h"
#include "io/checkpoint.h"

namespace mh::analysis {

// The spectra of the matrices of one attention layer or of one parameter.
struct SpectraEntry {
  std::string matrix_kind;           // kind of matrix, such as "attention", "logits-before-mixing" or "weight"
  std::string name;                  // prefix of a layer, or name of a parameter
  std::string attention_kind;        // kind of attention: "decoder.self"; "" for parameters outside attention layers
  int64_t layer = -1;                // -1 for parameters outside attention layers
  bool has_matrix_per_head = false;  // whether there is one matrix per head; false: one matrix for all heads
  SpectrumMeans spectra;             // statistics of singular values (blocks, heads or 1, n)
  EntropyMeans entropy;              // valid only if has_entropy
  bool has_entropy = false;
  // Mean of the matrices whose two axes are heads, (h, hv) for mixing; undefined for sources of other matrices.
  at::Tensor mean_matrix = {};
};

class SpectrumSource : public AdditiveObserver {
 public:
  struct SourceRequest {
    std::string argument;                  // text after the colon of the source's name
    bool needs_percentiles = false;        // whether percentiles_of() will be called
    int64_t block_length = 0;              // number of tokens of a block of full length; 0: use blocks of any length
    bool has_sentences = false;            // whether batch rows are sentences
    Kinds kinds = {};                      // kinds of attention to analyse; empty: all
    std::string model_name = "the model";  // name of the model for messages
  };
  // Returns a noun phrase that describes the matrices, for help texts: "matrices that mix heads".
  virtual const char* summary() const = 0;
  // Returns whether the source observes forward passes; if not, start() reads all matrices from parameters.
  virtual bool reads_text() const { return true; }
  // Returns whether the name of the source needs an argument after a colon, as in weight:NAME.
  virtual bool needs_argument() const { return false; }
  // Returns whether the matrices are those that AttentionDump writes: attention matrices after mixing.
  virtual bool reads_attention() const { return false; }
  // Returns whether the axes of the matrices are queries and keys, so that matrices of different sentences differ in
  // size.
  virtual bool has_token_axes() const { return false; }
  // Prepares the source for a model. Must be called once, before any forward pass. Throws Error(usage) if the model
  // lacks a mixer, a matrix across heads or the parameter that the source reads, or if the parameter has the wrong
  // number of axes or heads. Other sources have no entries, without an error, if the model lacks their matrices.
  virtual void start(model::LanguageModel& model, const SourceRequest& request) { request_ = request; }
  void begin_batch(const attention::Lengths& lengths) override { lengths_ = lengths; }
  // Returns the layers or parameters with their spectra, in the order of layers.
  const std::vector<std::unique_ptr<SpectraEntry>>& entries() const { return entries_; }

 protected:
  // Returns the entry of entries() called `name`; adds it if there is none.
  SpectraEntry& find_or_add_entry(const std::string& matrix_kind, const std::string& name, bool has_matrix_per_head,
                                  bool has_varying_size = false);
  // The spectra of matrices of one layer in a forward pass.
  struct Contribution {
    std::string matrix_kind, name;  // SpectraEntry::matrix_kind and SpectraEntry::name of the layer
    bool has_matrix_per_head = false, has_varying_size = false;
    bool is_constant = false;  // whether all forward passes have the same matrix, which is counted once
    at::Tensor values;         // (blocks, h, n), singular values
    at::Tensor entropy_sums;   // result of EntropyMeans::sums_over_queries(); undefined: no entropy
    at::Tensor mean_matrix;    // mean of the matrices; undefined: no mean
  };
  void contribute_spectra(const Contribution& c);
  // Returns the entry called `name`; null if there is none.
  const SpectraEntry* find_entry(const std::string& name) const;
  // Contributes the spectra of matrices x (B, h or hv, Tq, Tk) of a forward pass. `has_entropy`: whether x are
  // attention matrices, whose entropy is added as well.
  void add_matrices(const std::string& matrix_kind, const attention::LayerSpec& layer_spec, const at::Tensor& x,
                    bool has_entropy);
  // Returns the elements of x (B, Tq, …) at the N queries that are analysed, as (N, …): for sentences all queries that
  // are not padding, otherwise the queries of blocks of full length.
  at::Tensor valid_positions(attention::AttentionKind kind, const at::Tensor& x) const;
  bool includes(attention::AttentionKind kind) const { return contains(request_.kinds, kind); }
  SourceRequest request_;

 private:
  void add_contribution(const std::string& label, const Tensors& tensors) override;
  // Returns the batch rows of x that are blocks of full length.
  at::Tensor full_blocks(attention::AttentionKind kind, const at::Tensor& x) const;
  attention::Lengths lengths_;
  std::vector<std::unique_ptr<SpectraEntry>> entries_;
};

Registry<SpectrumSource>& spectrum_sources();

// Returns the sources whose reads_text() is `reads_text`, as a user writes them: "alphas", "weight:NAME".
std::vector<std::string> source_forms(bool reads_text);
// Returns source_forms() with the summary() of each source: "alphas (parameters that map heads to heads)".
std::vector<std::string> summarised_source_forms(bool reads_text);

// A source and the argument that the user wrote after the colon of its name.
struct SourceAndArgument {
  std::unique_ptr<SpectrumSource> source;
  std::string argument;  // text after the colon; "" without a colon
};
// Parses a source as a user writes it; "weight:NAME" gives the source `weight` with the argument NAME. Throws
// Error(usage) that names the option `where` for unknown sources, for `weight` without an argument and for other
// sources with an argument.
SourceAndArgument parse_source(const std::string& text, const std::string& where);

// Throws Error(usage) that names the option `where` if the checkpoint lacks the tensor `name`, the NAME of weight:NAME;
// the error suggests a similar name or, without one, gives an example.
void require_weight(const io::Checkpoint& checkpoint, const std::string& name, const std::string& where);

}  // namespace mh::analysis
