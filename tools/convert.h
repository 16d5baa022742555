// The jobs of mh-convert, a file for each kind of input.
#pragma once

#include <string>
#include <vector>

namespace mh::convert {

struct Arguments {
  std::vector<std::string> files;
  std::string output = "-";
  bool average = false, fold = false;
  int threads = 0;
};

// Checkpoints of multihead into one: their mean, with combiners folded.
void models(const Arguments& a);

}  // namespace mh::convert
