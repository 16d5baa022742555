// Option structs: plain structs beside the code that uses them. A struct lists its fields once, in describe(); this
// list defines the options of the command line, the keys of configuration files and of `--set`, the resolved
// configuration, and the help:
//
//   struct OptimizerOptions {
//     double lr = 5e-4;
//     void describe(Fields& f) { f.field("lr", lr, "peak learning rate, per update", at_least(0)); }
//   };
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"

namespace mh {

// Bounds of a number, both inclusive; the error for a number out of bounds states the bounds.
struct Range {
  double low;
  double high;
  std::optional<double> unset_value = std::nullopt;  // the only valid number out of bounds, which means "not set"
};
Range any_number();
Range at_least(double low);
Range between(double low, double high);
Range positive();  // > 0
Range or_unset(double unset_value, Range range);

// Returns the name of a field in messages: its key in the section, such as train.validation.decode.min_length, or, for
// an empty section, its option on the command line, such as --min-length.
std::string field_name(const std::string& section, const std::string& field);

// Returns `text` as a quoted TOML string.
std::string quoted_toml(const std::string& text);

// States whether a field may change when a training run is resumed; the strictest rule comes first. Most fields
// determine the results of the run, so `fixed` is the default.
enum class ResumeRule {
  fixed,
  fixed_with_validation_set,  // changeable only in a run without a validation set
  changeable
};

// A visitor of the fields of an option struct. describe() calls `f.field(...)` once for each field, in the order of
// display.
class Fields {
 public:
  virtual ~Fields() = default;

  // Sets the resume rule of a field or section after its visit: `f.field("lr", lr, "...").changeable()`.
  class VisitedField {
   public:
    VisitedField(Fields& fields, std::string key) : fields_(fields), key_(std::move(key)) {}
    void changeable() const { fields_.set_resume_rule(key_, ResumeRule::changeable); }
    void fixed_with_validation_set() const { fields_.set_resume_rule(key_, ResumeRule::fixed_with_validation_set); }

   private:
    Fields& fields_;
    const std::string key_;
  };

  VisitedField field(const std::string& key, bool& value, const std::string& help);
  VisitedField field(const std::string& key, int64_t& value, const std::string& help, Range range = any_number());
  VisitedField field(const std::string& key, double& value, const std::string& help, Range range = any_number());
  // Visits a text field. `choices`: the valid texts; empty: any text is valid.
  VisitedField field(const std::string& key, std::string& value, const std::string& help,
                     const std::vector<std::string>& choices = {});
  VisitedField field(const std::string& key, Length& value, const std::string& help);
  VisitedField field(const std::string& key, std::vector<int64_t>& value, const std::string& help,
                     Range range = any_number());
  VisitedField field(const std::string& key, std::vector<double>& value, const std::string& help,
                     Range range = any_number());
  VisitedField field(const std::string& key, std::vector<std::string>& value, const std::string& help);
  // Visits a list of texts that may also be a single text. One text is written as a text, several as a list, and an
  // empty list as an empty text. `choices`: the valid texts; empty: any text is valid.
  VisitedField text_or_texts(const std::string& key, std::vector<std::string>& value, const std::string& help,
                             const std::vector<std::string>& choices = {});
  // Visits a list of numbers that a written configuration contains only if the list is not empty.
  VisitedField numbers_if_any(const std::string& key, std::vector<double>& value, const std::string& help,
                              Range range = any_number());

  // Visits an enum field. `names`: the name of each value in configurations.
  template <class E>
  VisitedField choice(const std::string& key, E& value, const std::vector<std::pair<E, std::string>>& names,
                      const std::string& help) {
    std::vector<std::string> choices;
    std::string current_name;
    for (const auto& [v, name] : names) {
      choices.push_back(name);
      if (v == value) current_name = name;
    }
    VisitedField visited_field = field(key, current_name, help, choices);
    for (const auto& [v, name] : names)
      if (name == current_name) value = v;
    return visited_field;
  }

  // Visits the fields of a struct with a prefix: in the section "train", the field "lr" has the key `train.lr`. An
  // empty name adds no prefix.
  template <class Options>
  VisitedField section(const std::string& name, Options& options) {
    push(name);
    options.describe(*this);
    const std::string prefix = full_key("");
    pop();
    return {*this, prefix};
  }

 protected:
  // Describes a field to a visitor, independently of the C++ type of the field.
  struct Field {
    std::string key;  // full key, with the sections
    std::string help;
    // "true/false", "integer", "number", "text", "length", "integers", "numbers", "texts" or "text or texts"
    std::string type;
    std::string text;                  // present value in TOML syntax
    std::vector<std::string> choices;  // valid texts; empty: any text
    Range range;
    bool is_written = true;  // whether a written configuration contains the field
  };
  // Receives a field. Returns true and sets `text`, in TOML syntax, if the visitor has a new value for the field.
  virtual bool visit(const Field& field, std::string& text) = 0;
  // Receives the resume rule of a visited field, or of all fields of a visited section; the key of a section ends with
  // a dot.
  virtual void set_resume_rule(const std::string& /*key*/, ResumeRule) {}
  // Returns the origin of the value of `key`, such as "file.toml:12: train.lr" or "--set train.lr", for messages.
  virtual std::string origin(const std::string& key) const;

 private:
  void push(const std::string& name);
  void pop();
  std::string full_key(const std::string& key) const;
  template <class T>
  void visit_value(const std::string& key, T& value, const std::string& help, const char* type,
                   const std::vector<std::string>& choices, Range range, bool is_written = true);
  std::vector<std::string> sections_;
};

}  // namespace mh
