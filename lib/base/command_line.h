// Binds option structs to the command line (CLI11): the field `save_every` is the option `--save-every`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/fields.h"

namespace mh {

// Adds one option for each field of `options`. The struct must outlive app.parse(); values are checked as the
// configuration's are. A bool is a flag (`--flag`), true/false may follow as `--flag=false`.
class CommandLineFields : public Fields {
 public:
  explicit CommandLineFields(CLI::App& app) : app_(app) {}

 protected:
  bool visit(const Field& field, std::string& text) override;

 private:
  CLI::App& app_;
};

}  // namespace mh
