// Binds option structs to the command line (CLI11): the field `save_every` becomes the option `--save-every`.
//
//   PrepOptions options;
//   CommandLineFields fields(app);
//   fields.declare(options);
//   … parse …
//   fields.take(options);   // checks values like those of a configuration
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/fields.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace mh {

// Accepts these words; an error lists them and names the nearest one.
CLI::Validator one_of(const std::vector<std::string>& words);
// Accepts integers within these bounds, in decimal digits. CLI11 alone reads 010 as 8 and clamps values beyond 64 bits.
CLI::Validator whole_number(int64_t low, int64_t high = INT64_MAX);

// Adds --format, with the values "table" and "json". `of`: the output it applies to in its help, such as
// "of tables".
CLI::Option* add_format(CLI::App& app, std::string& format, const std::string& of = "");

// Adds an option that takes several values in one argument, separated by commas. `type`: name of the argument in the
// help.
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<std::string>& values, const std::string& help,
                      const std::string& type);

class CommandLineFields : public Fields {
 public:
  explicit CommandLineFields(CLI::App& app) : app_(app) {}

  // Adds one option for each field, with its default in the help. A bool is a flag; `--flag=false` turns it off.
  template <class Options>
  void declare(Options& options) {
    options.describe(*this);
    declared_ = true;
  }
  // Fills the given fields, after parsing. Throws Error(usage) naming the option.
  template <class Options>
  void take(Options& options) {
    options.describe(*this);
  }

  // Return the declared options, in the order of their fields, or the option of one field.
  const std::vector<CLI::Option*>& options() const { return in_order_; }
  CLI::Option* option(const std::string& key) const { return options_.at(key).option; }

 protected:
  bool visit(const Field& field, std::string& text) override;
  std::string origin(const std::string& key) const override;

 private:
  struct Option {
    std::string text;
    CLI::Option* option = nullptr;
  };
  static std::string unquoted(const std::string& text);
  static std::string placeholder(const std::string& type);

  CLI::App& app_;
  bool declared_ = false;
  std::map<std::string, Option> options_;
  std::vector<CLI::Option*> in_order_;
};

}  // namespace mh
