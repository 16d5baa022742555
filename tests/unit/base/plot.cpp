// Tests of Plot, which draws with gnuplot: file formats, atomic output, and checks of the path in the constructor.
#include "base/plot.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "fixtures/folder.h"
#include "fixtures/skip.h"
#include "fixtures/status.h"

using namespace mh;

namespace {

bool has_gnuplot() {
  return status_of([] { Plot plot("x.svg"); }) == 0;
}

Plot sample_plot(const std::string& path) {
  Plot plot(path);
  Chart chart{"it's one", "k", "share", {}};
  chart.curves.push_back({"layer 0", {1, 2, 3}, {0.2, 0.7, 1}});
  chart.curves.push_back({"", {1, 2, 3}, {0.3, 0.6, 1}, true});
  plot.add(chart);
  plot.add(HeatMap{"map", "head", "layer", {{0, 1, 2}, {3, 4}}});
  return plot;
}

}  // namespace

TEST_CASE("curves and heat maps are drawn in the format that the suffix of the file selects", "[plot]") {
  if (!has_gnuplot()) SKIP("gnuplot is not installed");
  const Folder folder;
  const std::pair<const char*, const char*> formats[] = {
      {"a b.svg", "<?xml"}, {"a.png", "\x89PNG"}, {"a'.pdf", "%PDF"}};
  for (const auto& [name, magic] : formats) {
    sample_plot(folder.file(name)).draw();
    CHECK(read_text_file(folder.file(name)).rfind(magic, 0) == 0);
  }
  const std::string svg = read_text_file(folder.file("a b.svg"));
  for (const char* text : {"it's one", "layer 0", "share", "map"}) CHECK(svg.find(text) != std::string::npos);
}

TEST_CASE("a chart without a point of finite numbers is drawn as an empty panel", "[plot]") {
  if (!has_gnuplot()) SKIP("gnuplot is not installed");
  const Folder folder;
  Plot plot(folder.file("empty.svg"));
  plot.add(Chart{"no curve", "x", "y", {}});
  plot.add(Chart{"no number", "x", "y", {{"loss", {1, 2}, {NAN, INFINITY}}, {"nll", {NAN}, {1}}}});
  plot.add(Chart{"one number", "x", "y", {{"diverged", {1, 2}, {NAN, NAN}}, {"finite", {1, 2}, {NAN, 3}}}});
  plot.draw();
  const std::string svg = read_text_file(folder.file("empty.svg"));
  for (const char* text : {"no curve", "no number", "one number", "diverged", "finite"})
    CHECK(svg.find(text) != std::string::npos);
}

TEST_CASE("a plot that cannot be drawn creates no file and does not change an existing file", "[plot]") {
  CHECK(status_of([] { Plot plot("x.jpeg"); }) == 2);
  CHECK(status_of([] { Plot plot("svg"); }) == 2);
  if (!has_gnuplot()) SKIP("gnuplot is not installed");
  const Folder folder;
  write_file_atomically(folder.file("old.svg"), "old");
  CHECK(status_of([&] { sample_plot(folder.file("none/x.svg")).draw(); }) == 1);
  const std::string search_path = std::getenv("PATH");
  setenv("PATH", (folder.path.string() + ":" + search_path).c_str(), 1);
  // Stand-ins for gnuplot: one fails without output, one fails after a part of its output, one is killed by a signal
  // after a part of its output, and one succeeds without output.
  for (const char* commands : {"exit 3", "echo '<svg'; exit 1", "echo '<svg'; kill -9 $$", "exit 0"}) {
    write_file_atomically(folder.file("gnuplot"), str("#!/bin/sh\n", commands, "\n"));
    chmod(folder.file("gnuplot").c_str(), 0755);
    for (const char* name : {"old.svg", "new.svg"})
      CHECK(status_of([&] { sample_plot(folder.file(name)).draw(); }) == 1);
  }
  setenv("PATH", (folder.path / "none").c_str(), 1);
  CHECK(status_of([&] { Plot plot("x.svg"); }) == 1);
  setenv("PATH", search_path.c_str(), 1);
  CHECK(read_text_file(folder.file("old.svg")) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 2);
}

TEST_CASE("a plot whose path is a symbolic link replaces the target", "[plot]") {
  if (!has_gnuplot()) SKIP("gnuplot is not installed");
  const Folder folder;
  write_file_atomically(folder.file("target"), "old");
  std::filesystem::create_symlink("target", folder.file("link.svg"));
  sample_plot(folder.file("link.svg")).draw();
  CHECK(std::filesystem::is_symlink(folder.file("link.svg")));
  CHECK(read_text_file(folder.file("target")).rfind("<?xml", 0) == 0);
}

TEST_CASE("a plot escapes control characters in its labels and never runs its path as a command", "[plot]") {
  if (!has_gnuplot()) SKIP("gnuplot is not installed");
  const Folder folder;
  const std::filesystem::path previous_folder = std::filesystem::current_path();
  std::filesystem::current_path(folder.path);
  const std::string path = "|touch ran;.svg";
  Plot plot(path);
  plot.add(Chart{"a\x1b[31m", "b\a", "c\u009b", {{"d\r", {1, 2}, {3, 4}}}});
  plot.draw();
  const std::string svg = read_text_file(folder.file(path));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
  std::filesystem::current_path(previous_folder);
  for (const char* text : {"a\\x1b[31m", "b\\x07", "c\\x9b", "d\\x0d"}) CHECK(svg.find(text) != std::string::npos);
}

TEST_CASE("short_names() removes the leading and trailing path components that all paths share", "[plot]") {
  using Names = std::vector<std::string>;
  CHECK(short_names({"runs/a/best.safetensors", "runs/b/best.safetensors"}) == Names{"a", "b"});
  CHECK(short_names({"a/x/best", "b/y/last"}) == Names{"a/x/best", "b/y/last"});
  CHECK(short_names({"runs/a/best"}) == Names{"runs/a/best"});
  CHECK(short_names({"a/best", "best"}) == Names{"a/best", "best"});
}
