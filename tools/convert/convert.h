// The conversions of mh-convert: checkpoints.cpp averages and folds checkpoints, and huggingface.cpp reads and writes
// Hugging Face folders.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "io/checkpoint.h"

namespace mh::convert {

struct Arguments {
  std::vector<std::string> files;
  std::string output = "-";
  bool average = false, fold = false;
  int64_t head_size = 0;              // --head-size: size to which heads are padded with zeros; 0: unchanged heads
  std::string output_format;          // "huggingface"; empty: a multihead checkpoint
  std::string dtype = "float32";      // --dtype: type of the tensors in the output
  bool accepts_padding_rows = false;  // --padded-vocabulary: whether the embedding may have rows past the vocabulary
  uint64_t seed = 1;
  int threads = 0;
  // Options that only some conversions read.
  CLI::Option *padded_vocabulary_option = nullptr, *seed_option = nullptr, *output_option = nullptr,
              *head_size_option = nullptr;

  // Returns whether an option makes a checkpoint from checkpoints.
  bool changes_checkpoints() const { return average || fold || head_size > 0; }
};

// Writes a new checkpoint: the average of several checkpoints (--average), a checkpoint with its combiners folded
// (--fold) or with its heads padded (--head-size), or, with several of these options, the result of all in this order.
void convert_checkpoints(const Arguments& args);

// Returns whether the arguments select conversion from a Hugging Face folder.
bool is_from_huggingface(const Arguments& args);
// Writes a checkpoint from a Hugging Face folder.
void convert_from_huggingface(const Arguments& args);
// Writes a Hugging Face folder from a checkpoint.
void convert_to_huggingface(const Arguments& args);

// Returns the type of the tensors in the output (--dtype).
io::DType output_type(const Arguments& args);

// Throws Error(usage) if the output is a terminal or one of the inputs.
void check_output(const Arguments& args);

}  // namespace mh::convert
