// Binds option structs to the command line (CLI11): the field `min_count` becomes the option `--min-count`.
//
//   VocabularyOptions options;
//   CommandLineFields fields(app);
//   fields.declare(options);
//   … parse …
//   fields.store_values(options);   // sets the fields and checks their values, as for a configuration file
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

// Returns a validator that accepts only the given words; its error message lists the words and suggests the nearest
// one.
CLI::Validator one_of(const std::vector<std::string>& words);
// Returns a validator that accepts the integers from `low` to `high`, in decimal digits without leading zeros. CLI11 by
// itself reads 010 as octal 8 and clamps values beyond 64 bits.
CLI::Validator whole_number(int64_t low, int64_t high = INT64_MAX);

// Adds the option --format with the values "table" and "json". `qualifier`: phrase in the help that names the
// affected output, such as "of tables"; empty: all output.
CLI::Option* add_format_option(CLI::App& app, std::string& format, const std::string& qualifier = "");

// Adds an option that takes several values in one argument, separated by commas. `type`: placeholder of the argument in
// the help.
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<std::string>& values, const std::string& help,
                      const std::string& type);

// Throws Error(usage) for the first of `options` that is on the command line, whatever its value: an option that has no
// effect is refused even if its value is the default. `expected`, `found`: parts of the error. `alternative`: advice
// other than to leave the option out, such as "pass --data"; empty: none.
void refuse_options(const std::vector<CLI::Option*>& options, const std::string& expected, const std::string& found,
                    const std::string& alternative = "");

// Throws Error(usage) if more than one of `paths` is "-", since only one file can be read from standard input. `where`:
// place of the error; "": none.
void refuse_repeated_standard_input(const std::string& where, const std::vector<std::string>& paths);

class CommandLineFields : public Fields {
 public:
  explicit CommandLineFields(CLI::App& app) : app_(app) {}

  // Adds an option for each field of the struct. The help shows the present value of a field as its default, unless the
  // value is empty or a bool. A bool becomes a flag; `--flag=false` sets it to false.
  template <class Options>
  void declare(Options& options) {
    options.describe(*this);
    has_declared_options_ = true;
  }
  // Sets the fields whose options were given on the command line; called after parsing. Throws Error(usage) with the
  // name of the option for an invalid value.
  template <class Options>
  void store_values(Options& options) {
    options.describe(*this);
  }

  // Returns the declared options, in the order of their fields.
  const std::vector<CLI::Option*>& options() const { return options_; }
  // Returns the option of the field `key`.
  CLI::Option* option(const std::string& key) const { return entries_.at(key).option; }

 protected:
  bool visit(const Field& field, std::string& text) override;
  std::string origin(const std::string& key) const override;

 private:
  struct Entry {
    std::string text;  // value on the command line
    CLI::Option* option = nullptr;
  };
  static std::string without_quotes(const std::string& text);
  static std::string placeholder_of(const Field& field);

  CLI::App& app_;
  bool has_declared_options_ = false;
  std::map<std::string, Entry> entries_;  // by the key of the field
  std::vector<CLI::Option*> options_;     // in the order of the fields
};

}  // namespace mh
