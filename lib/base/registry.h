// Registry of implementations by name. An implementation registers itself with a static object in its source file:
//   const Registration<Disagreement> disagreement_entry(regularisers(), "disagreement", "heads that differ");
// Nothing refers to this object; the linker nevertheless keeps it, because it is in a shared library.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace mh {

template <class Interface>
class Registry {
 public:
  struct Entry {
    std::string help;  // one line for lists and man pages
    std::unique_ptr<Interface> (*make)();
  };

  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  // Adds an implementation under `name`. An Implementation that does not derive from Interface is wrapped in
  // Interface::Adapter<Implementation>. Throws std::logic_error for a name that is already registered, since the order
  // of linking would choose between the two implementations.
  template <class Implementation>
  void add(const std::string& name, const std::string& help) {
    const auto make = []() -> std::unique_ptr<Interface> {
      if constexpr (std::is_base_of_v<Interface, Implementation>) return std::make_unique<Implementation>();
      else return std::make_unique<typename Interface::template Adapter<Implementation>>();
    };
    if (!entries_.emplace(name, Entry{help, make}).second)
      throw std::logic_error(str("two implementations of the kind ", kind_, " are called '", name, "'"));
  }

  // Returns the entry of `name`. Throws Error(usage) with the nearest name, or else with `advice`, for an unknown name;
  // `key` is the option or configuration key whose value is `name`.
  const Entry& find(const std::string& name, const std::string& key,
                    const std::string& advice = "use one of these names") const {
    auto it = entries_.find(name);
    if (it == entries_.end())
      refuse_usage(key, str("one of: ", join(names(), ", ")), str("unknown ", kind_, " '", name, "'"),
                   did_you_mean(name, names(), advice));
    return it->second;
  }
  std::unique_ptr<Interface> make(const std::string& name, const std::string& key) const {
    return find(name, key).make();
  }

  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& [name, entry] : entries_) result.push_back(name);
    return result;
  }

 private:
  std::string kind_;
  std::map<std::string, Entry> entries_;
};

// An object whose constructor registers an implementation.
template <class Implementation>
class Registration {
 public:
  template <class Interface>
  Registration(Registry<Interface>& registry, const std::string& name, const std::string& help) {
    registry.template add<Implementation>(name, help);
  }
};

}  // namespace mh
