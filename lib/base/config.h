// A configuration: values from TOML files, each of which may `include` other files, and from `--set key=value`; the
// last assignment of a key counts. Option structs read their fields from a Config; check_all_known() reports a key that
// no struct has read.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fields.h"

namespace mh {

class Config {
 public:
  Config() = default;

  // Reads a TOML file. The files that its key `include` lists, as in `include = ["../base.toml"]`, are read before the
  // other keys; their paths are relative to the folder of the including file. Throws Error(input) for a missing file,
  // Error(usage) for more than 1 MiB or a cycle of includes, and Error(usage) with line and column for invalid syntax.
  // Converts keys and values of earlier versions (base/renamed_keys.h) with a warning, once per key, that names the
  // present form.
  void load_file(const std::string& path);
  // Parses TOML text, such as the configuration in a checkpoint; `name` is the name of the text in messages. Ignores
  // the key `include`. Converts keys of earlier versions without a warning.
  void load_text(const std::string& text, const std::string& name);
  // Assigns a value from a text such as "train.lr=3e-4". The value is TOML, or a string without quotes if it is not
  // valid TOML. Converts keys of earlier versions with a warning. Throws Error(usage) for a text without "=" or without
  // a key, and for a string that is not UTF-8.
  void set(const std::string& assignment);
  // Assigns the string `text`, such as a file name, without parsing it as TOML. `origin`: option that provided the
  // text, for messages. Throws Error(usage) for text that is not UTF-8, since configurations are stored as TOML.
  void set_text(const std::string& key, const std::string& text, const std::string& origin);
  // Assigns a list of strings in the same way.
  void set_texts(const std::string& key, const std::vector<std::string>& texts, const std::string& origin);

  // Sets the fields of the struct from the keys below `section` ("" for top-level keys), and registers the keys of all
  // its fields as known. Throws Error(usage) with the origin of the value for a wrong type or a value out of range.
  template <class Options>
  void read(const std::string& section, Options& options) {
    Reader reader(*this);
    reader.section(section, options);
  }
  // Returns the keys that start with `section.`, without that prefix.
  std::vector<std::string> keys_below(const std::string& section) const;

  // Throws Error(usage), which suggests the nearest known key, for the first key in alphabetical order that no read()
  // has registered. An empty section, such as `[train]` without keys, is accepted if read() has registered a key of the
  // section.
  void check_all_known() const;

 private:
  struct Value {
    std::string text;    // value in TOML syntax
    std::string origin;  // "file.toml:12" or "--set train.lr"
  };
  class Reader : public Fields {
   public:
    explicit Reader(Config& config) : config_(config) {}

   protected:
    bool visit(const Field& field, std::string& text) override;
    std::string origin(const std::string& key) const override;

   private:
    Config& config_;
  };
  // States whether converting a key or value of an earlier version logs a warning.
  enum class RenamedKeys { silent, warn };
  void insert(const std::string& key, const Value& value, RenamedKeys renamed_keys);
  void load_text(const std::string& text, const std::string& name, RenamedKeys renamed_keys);
  void load_file(const std::string& path, std::vector<std::string> open_files);

  std::map<std::string, Value> values_;
  std::set<std::string> known_keys_;
};

// Calls `body`, which reads a configuration that is stored in the file `name`, such as a checkpoint, and returns its
// result. Rethrows Error(usage) as Error(input): an invalid value is a fault of the file, not of the command line, and
// the user cannot set the keys that the advice of the error names. Replaces this advice by `advice`, and puts the name
// of the file before the place of the error, unless the place begins with it.
template <class Body>
auto read_stored_config(const std::string& name, const std::string& advice, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.exit() != Exit::usage) throw;
    const Problem& problem = error.problem();
    const bool names_file = problem.where.starts_with(name + ":");
    refuse_input(names_file ? problem.where : str(name, ": configuration: ", problem.where), problem.expected,
                 without_default_remark(problem.found), advice);
  }
}

// Writes option structs as TOML text with sections, one `key = value` per line, in the order of describe().
class TomlWriter : public Fields {
 public:
  std::string text() const;

 protected:
  bool visit(const Field& field, std::string& text) override;

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> section_lines_;  // name and lines of each section
};

// A key whose value differs between two configurations.
struct ConfigDifference {
  std::string key;
  std::string text;  // key with both values, "key: old -> new"; "default" for a missing value
};
// Returns the keys whose values differ between two texts that TomlWriter wrote: first the keys of `old_toml`, then the
// keys that only `new_toml` has, each in alphabetical order.
std::vector<ConfigDifference> config_differences(const std::string& old_toml, const std::string& new_toml);
// Returns ConfigDifference::text of each differing key that starts with one of the prefixes.
std::vector<std::string> config_difference_texts(const std::string& old_toml, const std::string& new_toml,
                                                 const std::vector<std::string>& prefixes);

// Describes a field of an option struct: its key, type, default value, help, valid texts and resume rule.
struct FieldDescription {
  std::string key, type, value, help;
  std::vector<std::string> choices;
  ResumeRule resume_rule = ResumeRule::fixed;
};

// Collects the descriptions of the fields of option structs, for `--list` and the manual.
class FieldLister : public Fields {
 public:
  const std::vector<FieldDescription>& descriptions() const { return descriptions_; }

 protected:
  bool visit(const Field& field, std::string& text) override;
  void set_resume_rule(const std::string& key, ResumeRule rule) override;

 private:
  std::vector<FieldDescription> descriptions_;
};

}  // namespace mh
