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
  std::string to;       // "huggingface"; empty: a multihead checkpoint
  bool padded = false;  // --padded-vocabulary
  uint64_t seed = 1;
  int threads = 0;
};

// Writes one checkpoint from several (--average) or from one with its combiners folded (--fold), or both.
void models(const Arguments& a);

// Returns whether the arguments select conversion from a Hugging Face folder.
bool is_from_huggingface(const Arguments& a);
// Writes a checkpoint from a Hugging Face folder.
void from_huggingface(const Arguments& a);
// Writes a Hugging Face folder from a checkpoint.
void to_huggingface(const Arguments& a);

// Appends `step` to the list of conversions that produced a checkpoint, which its metadata hold (io::kOriginKey).
// `file`: name of the input, for error messages.
void add_origin(io::Metadata& metadata, const std::string& file, const nlohmann::ordered_json& step);
// Throws Error(usage) if the output is a terminal or one of the inputs.
void check_output(const Arguments& a);

}  // namespace mh::convert
