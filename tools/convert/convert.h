// The jobs of mh-convert, one file per kind of input.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace mh::convert {

struct Arguments {
  std::vector<std::string> files;
  std::string output = "-";
  bool average = false, fold = false;
  std::string output_format;      // "huggingface"; empty: a multihead checkpoint
  bool keep_padded_rows = false;  // --padded-vocabulary
  uint64_t seed = 1;
  int threads = 0;
};

// Writes one checkpoint from several (--average) or from one with its combiners folded (--fold), or both.
void convert_checkpoints(const Arguments& args);

// Returns whether the arguments select conversion from a Hugging Face folder.
bool is_from_huggingface(const Arguments& args);
// Writes a checkpoint from a Hugging Face folder.
void convert_from_huggingface(const Arguments& args);
// Writes a Hugging Face folder from a checkpoint.
void convert_to_huggingface(const Arguments& args);

// Appends `step` to the list of conversions that produced a checkpoint, which its metadata hold (io::kOriginKey).
// `file`: name of the input, for error messages.
void add_origin(io::Metadata& metadata, const std::string& file, const nlohmann::ordered_json& step);
// Throws Error(usage) if the output is a terminal or one of the inputs.
void check_output(const Arguments& args);

}  // namespace mh::convert
