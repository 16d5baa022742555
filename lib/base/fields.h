// Options are plain structs beside the code they drive. A struct lists its fields once, in describe(); the command
// line, the configuration file, `--set`, the resolved configuration and the help all come from that one list:
//
//   struct OptimizerOptions {
//     double lr = 5e-4;
//     void describe(Fields& f) { f.field("lr", lr, "peak learning rate, per update", at_least(0)); }
//   };
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"

namespace mh {

// Bounds of a number, both ends included; the message of a violation names them.
struct Range {
  double low;
  double high;
};
Range any_number();
Range at_least(double low);
Range between(double low, double high);
Range positive();  // > 0

// Returns the text in quotes, as TOML writes it.
std::string quoted_toml(const std::string& text);

// Whether a resume may change the field. Most fields define the run, so `fixed` is the default.
enum class Resume {
  fixed,
  fixed_once_validated,  // changeable unless the run has a validation set
  changeable
};

// A visitor of a struct's fields. describe() calls `f.field(...)` once for each field, in the order of display.
class Fields {
 public:
  virtual ~Fields() = default;

  // A field or section that was just visited; sets its properties: `f.field("lr", lr, "...").changeable()`.
  class Visited {
   public:
    Visited(Fields& fields, std::string key) : fields_(fields), key_(std::move(key)) {}
    void changeable() const { fields_.mark(key_, Resume::changeable); }
    void fixed_once_validated() const { fields_.mark(key_, Resume::fixed_once_validated); }

   private:
    Fields& fields_;
    const std::string key_;
  };

  Visited field(const std::string& key, bool& value, const std::string& help);
  Visited field(const std::string& key, int64_t& value, const std::string& help, Range range = any_number());
  Visited field(const std::string& key, double& value, const std::string& help, Range range = any_number());
  // choices empty: any text.
  Visited field(const std::string& key, std::string& value, const std::string& help,
                const std::vector<std::string>& choices = {});
  Visited field(const std::string& key, Length& value, const std::string& help);
  Visited field(const std::string& key, std::vector<int64_t>& value, const std::string& help,
                Range range = any_number());
  Visited field(const std::string& key, std::vector<double>& value, const std::string& help,
                Range range = any_number());
  Visited field(const std::string& key, std::vector<std::string>& value, const std::string& help);

  // Visits an enum with a table of (value, name).
  template <class E>
  Visited choice(const std::string& key, E& value, const std::vector<std::pair<E, std::string>>& names,
                 const std::string& help) {
    std::vector<std::string> all;
    std::string now;
    for (const auto& [v, name] : names) {
      all.push_back(name);
      if (v == value) now = name;
    }
    Visited visited = field(key, now, help, all);
    for (const auto& [v, name] : names)
      if (name == now) value = v;
    return visited;
  }

  // Visits the fields of a struct in a section: "train" + "lr" is `train.lr`. An empty name adds no prefix.
  template <class Options>
  Visited section(const std::string& name, Options& options) {
    push(name);
    options.describe(*this);
    const std::string prefix = full("");
    pop();
    return {*this, prefix};
  }

 protected:
  // A field as a visitor sees it, whatever its type. `text` is the present value in TOML syntax.
  struct Field {
    std::string key;  // with the sections
    std::string help;
    std::string type;  // "true/false", "integer", "number", "text", "length", "integers", "numbers", "texts"
    std::string text;
    std::vector<std::string> choices;
    Range range;
  };
  // Returns true and fills `text` (TOML syntax) if the visitor has a value for the field.
  virtual bool visit(const Field& field, std::string& text) = 0;
  // Receives a property of a field, or of all fields of a section, whose key ends with a dot, after their visit.
  virtual void mark(const std::string& /*key*/, Resume) {}
  // Returns the origin of the visitor's value ("file.toml:12", "--set train.lr"), for messages.
  virtual std::string origin(const std::string& key) const;

 private:
  void push(const std::string& name);
  void pop();
  std::string full(const std::string& key) const;
  template <class T>
  void handle(const std::string& key, T& value, const std::string& help, const char* type,
              const std::vector<std::string>& choices, Range range);
  std::vector<std::string> sections_;
};

}  // namespace mh
