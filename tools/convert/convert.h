// The jobs of mh-convert, a file for each kind of input.
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
  std::string to;  // "huggingface"; empty: a checkpoint of ours
  bool padded = false;
  uint64_t seed = 1;
  int threads = 0;
};

// Checkpoints of multihead into one: their mean, with combiners folded.
void models(const Arguments& a);

// Whether what is given is a folder of Hugging Face, to be read.
bool is_from_huggingface(const Arguments& a);
void from_huggingface(const Arguments& a);
void to_huggingface(const Arguments& a);

// Adds to what is told of how the file was made. `file` stands in messages.
void add_origin(io::Metadata& metadata, const std::string& file, const nlohmann::ordered_json& step);
// Error(usage) where a checkpoint would go to a terminal, or onto one of the inputs.
void check_output(const Arguments& a);

}  // namespace mh::convert
