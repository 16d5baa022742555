// Regularisers and procedures, each enabled by its section: `[train.regularisers.NAME]`, `[train.procedures.NAME]`.
// NAME is the implementation's name. A regulariser's section may have any other name if `type` names the
// implementation, so that one implementation can act several times with different options:
//
//   [train.regularisers.subspace-overlap]
//   of = "rows"
//   [train.regularisers.columns]
//   type = "subspace-overlap"
//   of = "columns"
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "base/registry.h"

namespace mh::train {

// The key of a section that names its implementation.
struct PluginType {
  std::string type;
  void describe(Fields& f) { f.field("type", type, "regulariser that the section configures; empty: NAME"); }
};

// A list of plugins of type T, which has describe(Fields&).
template <class T>
class Plugins {
 public:
  struct Entry {
    std::string name;  // name of the section
    PluginType named;
    std::shared_ptr<T> plugin;
    void describe(Fields& f) {
      if (!named.type.empty()) named.describe(f);
      plugin->describe(f);
    }
  };

  // Reads one plugin for each section below `section`, in the order of their names. Throws Error(usage) for an unknown
  // name or type. `types`: sections may name their implementation by `type`.
  void read(Config& config, const std::string& section, const Registry<T>& registry, bool types = false) {
    section_ = section;
    for (const std::string& key : config.keys_below(section)) {
      const std::string name = key.substr(0, key.find('.'));
      if (!entries_.empty() && entries_.back().name == name) continue;
      const std::string own = str(section, ".", name);
      Entry entry{name, {}, nullptr};
      if (types) config.read(own, entry.named);
      entry.plugin =
          entry.named.type.empty() ? registry.make(name, section) : registry.make(entry.named.type, own + ".type");
      config.read(own, *entry.plugin);
      entries_.push_back(std::move(entry));
    }
  }
  void describe(Fields& f) {
    for (Entry& entry : entries_) f.section(section_ + "." + entry.name, entry);
  }
  std::string toml() const {
    TomlWriter writer;
    Plugins copy = *this;  // shares the plugins, which a writer does not change
    copy.describe(writer);
    return writer.text();
  }
  // Drops the plugins for which `predicate` returns false.
  template <class Wanted>
  void keep(const Wanted& predicate) {
    std::erase_if(entries_, [&](const Entry& entry) { return !predicate(*entry.plugin); });
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::string section_;
  std::vector<Entry> entries_;
};

}  // namespace mh::train
