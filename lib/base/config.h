// A configuration: values from TOML files (each may `include` others), then `--set key=value`; later values win.
// Structs read their fields from it; a value that no struct reads is an error that names the nearest known key.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mh {

class Config {
 public:
  Config() = default;

  // Reads a TOML file. `include = ["../base.toml"]` at its top is read first, relative to the file's own folder. Throws
  // Error(input) for a missing file, Error(usage) for bad syntax, with file, line and column. Keys and values of
  // earlier versions, also in assignments, are converted (base/renamed_keys.h) with one warning each that names the
  // present ones.
  void load_file(const std::string& path);
  // Parses TOML text, such as that of a checkpoint; `name` is its name in messages. Does not follow includes. Keys of
  // earlier versions are converted without a warning.
  void load_text(const std::string& text, const std::string& name);
  // "train.lr=3e-4"; the value is TOML, or plain text where that does not parse as TOML.
  void set(const std::string& assignment);
  // Sets a key to a literal text, such as a file name. Throws Error(usage) for a text that is not UTF-8, as a
  // configuration must be. `origin` names the option.
  void set_text(const std::string& key, const std::string& text, const std::string& origin);

  // Fills the struct's fields below `section` ("" for none) with the values that are set. The keys of the fields become
  // known. Throws Error(usage) with the value's origin for a wrong type or a value out of range.
  template <class Options>
  void read(const std::string& section, Options& options) {
    Reader reader(*this);
    reader.section(section, options);
  }
  // Returns whether some key starts with `section.`; for optional sections (overrides by kind or layer).
  bool has_section(const std::string& section) const;
  // Returns every key that starts with `section.`, without that prefix.
  std::vector<std::string> keys_below(const std::string& section) const;

  // Throws Error(usage) naming the first value that no read() has read, with the nearest known key.
  void check_all_known() const;

 private:
  struct Value {
    std::string text;    // TOML syntax
    std::string origin;  // "file.toml:12" or "--set"
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
  // Whether the conversion of an old assignment is logged.
  enum class Renaming { silent, warns };
  void insert(const std::string& key, const Value& value, Renaming renaming);
  void load_text(const std::string& text, const std::string& name, Renaming renaming);
  void load_file(const std::string& path, std::vector<std::string> open_files);

  std::map<std::string, Value> values_;
  std::set<std::string> known_;
};

// Writes structs as TOML text with sections, one `key = value` a line, in the order given by describe().
class TomlWriter : public Fields {
 public:
  std::string text() const;

 protected:
  bool visit(const Field& field, std::string& text) override;

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> tables_;
};

// A value that differs between two configurations.
struct Difference {
  std::string key;
  std::string text;  // "key: old -> new"
};
// Returns the differences of two configurations in the form of TomlWriter: the keys of the first in order, then those
// only in the second.
std::vector<Difference> differences(const std::string& old_toml, const std::string& new_toml);
// Returns the texts of the differences of keys with one of the prefixes.
std::vector<std::string> changes(const std::string& old_toml, const std::string& new_toml,
                                 const std::vector<std::string>& prefixes);

// Lists keys with types, defaults and help, for `--list` and the manual.
class FieldLister : public Fields {
 public:
  struct Row {
    std::string key, type, value, help;
    std::vector<std::string> choices;
  };
  const std::vector<Row>& rows() const { return rows_; }

 protected:
  bool visit(const Field& field, std::string& text) override;

 private:
  std::vector<Row> rows_;
};

}  // namespace mh
