// Implementations register themselves by name from a static object; adding a method is adding a file.
// (The objects live in a shared library, where the linker keeps them.)
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace mh {

// Interface: what the factories make. Args: what they are made from.
template <class Interface, class... Args>
class Registry {
 public:
  using Factory = std::function<std::unique_ptr<Interface>(Args...)>;
  struct Entry {
    std::string help;  // one line for lists and man pages
    Factory make;
  };

  explicit Registry(std::string what) : what_(std::move(what)) {}

  // Throws std::logic_error for a name that is there already: which of the two would be made follows from the order in
  // which files were linked.
  void add(const std::string& name, std::string help, Factory make) {
    if (!entries_.emplace(name, Entry{std::move(help), std::move(make)}).second)
      throw std::logic_error(str("two entries of the kind ", what_, " are called '", name, "'"));
  }

  // Throws Error(usage) with the nearest name for an unknown one; `key` is the option that named it.
  const Entry& find(const std::string& name, const std::string& key) const {
    auto it = entries_.find(name);
    if (it == entries_.end())
      throw Error(Exit::usage, Problem{key, str("one of: ", join(names(), ", ")),
                                       str("unknown ", what_, " '", name, "'"), did_you_mean(name, names())});
    return it->second;
  }
  std::unique_ptr<Interface> make(const std::string& name, const std::string& key, Args... args) const {
    return find(name, key).make(std::forward<Args>(args)...);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
  }

 private:
  std::string what_;
  std::map<std::string, Entry> entries_;
};

// Registers an implementation that is made from nothing:
// `const Registered<Regulariser, Disagreement> disagreement_entry(regularisers(), "disagreement", "heads that
// differ");`
template <class Interface, class Implementation>
class Registered {
 public:
  Registered(Registry<Interface>& registry, const std::string& name, const std::string& help) {
    registry.add(name, help, [] { return std::make_unique<Implementation>(); });
  }
};

}  // namespace mh
